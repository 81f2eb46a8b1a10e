"""Charts of what probes measured at several steps of a run.

What a run measured of its own batches while training is in the section `curves.geometry`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import altair as alt

from grposcope.core.answer import Figure
from grposcope.core.estimate import Estimate
from grposcope.core.run import Run, labels
from grposcope.core.text import number, percent
from grposcope.instruments.gradient import findings as geometry
from grposcope.instruments.gradient.probe_record import ProbeRecord
from grposcope.render import charts as base
from grposcope.render.thinning import columns, rounded

Measure = Callable[[ProbeRecord], Estimate | float]
"""A number of a probe, with or without a standard error."""


@dataclass(frozen=True)
class _Chart:
    """A figure over steps. lines: short name -> measure; of several runs only the first line is drawn."""

    name: str
    title: str
    lines: dict[str, Measure]
    text: str
    share: bool = False

    @property
    def possible(self) -> geometry.Range:
        """The range of what its lines estimate."""
        return geometry.SHARE if self.share else geometry.RANK if self.name.endswith("ranks") else geometry.ANY


CHARTS = (
    _Chart(
        "ranks", "Ranks of a layer's gradient",
        {
            "stable": lambda probe: probe.rank("stable"),
            "participation": lambda probe: probe.rank("participation"),
            "entropy": lambda probe: probe.rank("entropy_sq"),
        },
        "Three definitions of rank, mean over the weight matrices.",
    ),
    _Chart(
        "rollout_ranks", "Ranks of the rollouts' gradients",
        {
            "stable": lambda probe: _rollout_rank(probe, "stable"),
            "participation": lambda probe: _rollout_rank(probe, "participation"),
            "entropy": lambda probe: _rollout_rank(probe, "entropy_sq"),
        },
        "The same definitions for the matrix with one row per rollout: its score times its weight.",
    ),
    _Chart(
        "dead", "Dead groups of the probes",
        {"seen": lambda probe: probe.groups.dead, "if equally hard": lambda probe: probe.groups.dead_if_alike},
        "Share of groups whose rewards are all equal, and p^G + (1−p)^G at the mean success rate p.",
        share=True,
    ),
    _Chart(
        "token_sparsity", "How few tokens carry the gradient",
        {
            "top 5%": lambda probe: probe.token_sparsity["top_5"],
            "top 1%": lambda probe: probe.token_sparsity["top_1"],
            "top 20%": lambda probe: probe.token_sparsity["top_20"],
            "Gini": lambda probe: probe.token_sparsity["gini"],
            "Hoyer": lambda probe: probe.token_sparsity["hoyer"],
        },
        "Share of the squared score norms ‖e_y − π‖² in the largest tokens; Gini and Hoyer of the norms (1: one holds "
        "all).",
        share=True,
    ),
    _Chart(
        "parameter_sparsity", "How few parameters carry the gradient",
        {
            "Gini": lambda probe: probe.parameter_sparsity["gini"],
            "Hoyer": lambda probe: probe.parameter_sparsity["hoyer"],
            "top 1%": lambda probe: probe.parameter_sparsity["top_1"],
            "below 0.1": lambda probe: probe.parameter_sparsity["below_0.1"],
            "below 0.01": lambda probe: probe.parameter_sparsity["below_0.01"],
            "below 0.001": lambda probe: probe.parameter_sparsity["below_0.001"],
        },
        "Gini and Hoyer index of the gradient's entries, share of the squared norm in the largest 1%, and share of "
        "entries below τ × the largest.",
        share=True,
    ),
    _Chart(
        "visible", "Weights a step changes in bfloat16",
        {
            "Adam's first": lambda probe: probe.parameter_sparsity["visible_adam"],
            "SGD": lambda probe: probe.parameter_sparsity["visible_sgd"],
        },
        "Share of the weights that a step of this learning rate would change if they were kept in bfloat16. It depends "
        "mainly on the learning rate.",
        share=True,
    ),
    _Chart(
        "baseline_gap", "Best baseline minus the group mean",
        {"b* − V": lambda probe: probe.baseline.covariance},
        "In units of reward, with 95% intervals; at 0 the group mean is the best constant baseline.",
    ),
    _Chart(
        "cancelled", "Credit that cancels",
        {"cancelled": lambda probe: probe.credit.cancelled},
        "Share of Σ|w|·‖e_y − π‖ that cancels between successes and failures on text they share.",
        share=True,
    ),
)  # fmt: skip


def curves(runs: Sequence[Run]) -> list[Figure]:
    """A figure for each measure that probes of at least two steps of a run have."""
    if not any(len(geometry.by_step(run)) > 1 for run in runs):
        return []
    return [figure for chart in CHARTS if (figure := _curve(chart, runs)) is not None]


def _curve(chart: _Chart, runs: Sequence[Run]) -> Figure | None:
    many = len(runs) > 1
    names, form = labels(runs), percent if chart.share else number
    lines = dict(list(chart.lines.items())[:1]) if many else chart.lines
    rows = []
    for label, run in zip(names, runs, strict=True):
        for short, measure in lines.items():
            estimates = {step: _estimate(measure(probe)) for step, probe in geometry.by_step(run).items()}
            finite = {step: value for step, value in estimates.items() if math.isfinite(value.value)}
            for step, value in finite.items() if len(finite) > 1 else ():
                ends = value.within(*chart.possible) if math.isfinite(value.se) else (value.value,) * 3
                shown = geometry.ranged(value, form, chart.possible)
                rows.append((step, label if many else short, *rounded(list(ends)), shown))
    if not rows:
        return None
    data = {"points": columns(("step", "line", "value", "low", "high", "shown"), rows)}
    order = names if many else list(lines)
    kinds = [kind for kind in order if kind in data["points"]["line"]]
    legend = alt.Legend(symbolType="stroke", columns=3) if len(kinds) > 1 and not many else None
    y = alt.Y("value:Q").axis(format="~%" if chart.share else alt.Undefined).scale(zero=chart.share)
    points = base.dataset("points").encode(base.steps(), y, base.colours("line", base.palette(kinds, order), legend))
    tips = base.tooltips(line="run" if many else "measure", step="step", shown="value (95%)")
    drawn = [
        base.dotted_line(points),
        points.mark_rule(opacity=0.45).encode(alt.Y("low:Q"), alt.Y2("high")),
        base.on_hover(points.encode(tooltip=tips)),
    ]
    text = f"{chart.text} One point per probe of the run; bars: 95% intervals where errors are known."
    return base.figure(f"probes_{chart.name}", chart.title, drawn, data, caption=text)


def _estimate(value: Estimate | float) -> Estimate:
    return value if isinstance(value, Estimate) else Estimate(value, math.nan, 0)


def _rollout_rank(probe: ProbeRecord, definition: str) -> float:
    ranks = probe.weightings.get(probe.recipe)
    return math.nan if ranks is None else ranks.rollout[definition]
