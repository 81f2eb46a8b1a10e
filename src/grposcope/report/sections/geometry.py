"""Section on what the gradient is made of, as a probe measured it: the verdicts in words, then charts and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.facts import geometry
from grposcope.facts.geometry import ranged
from grposcope.formatting import number, percent, visible
from grposcope.report.charts import geometry as charts
from grposcope.report.charts import geometry_over_steps as steps
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs.probe import ProbeRecord
from grposcope.runs.run import Floats, Run, labels

SHOWN = {
    "stable": "stable",
    "participation": "participation",
    "entropy_sq": "entropy σ²",
    "energy_90": "90% energy",
    "threshold_0.1": "σ ≥ σ₁/10",
}
"""Ranks of the tables and their headings."""

ROWS = 300
"""Rows of the table of layers."""


def section(runs: Sequence[Run]) -> Section | None:
    """The last probe of each run in words; charts of one, curves over steps of all."""
    probes = geometry.latest(runs)
    if not probes:
        return None
    drawn: list[Figure | None] = []
    tables: list[PageTable] = []
    text = []
    if len(probes) == 1:
        (label, _, record), notes = probes[0], []
        try:
            sizes = token_sizes(record)
        except UserError as error:
            sizes, notes = (np.empty(0), np.empty(0)), [f"{error}."]
        said = [geometry.about(record), *(fact.sentence for fact in geometry.facts(record)), *geometry.caveats(record)]
        text += [*([f"{label}:"] if len(runs) > 1 else []), *said, *notes]
        parts = (("score norm²", sizes[0] ** 2), ("credit |w| × score norm", sizes[1]))
        drawn += [charts.spectra(record), charts.ranks(record), charts.weightings(record),
                  charts.tokens(parts, "How few tokens carry it", _TOKENS), charts.baseline(record)]  # fmt: skip
        tables += [t for t in (_weightings(record), _layers(record), _statistics(record)) if t is not None]
    else:
        text += [f"{label}: {geometry.brief(record)}" for label, _, record in probes]
        tables.append(_compared(probes))
        drawn.append(charts.compared_ranks([(label, record) for label, _, record in probes], labels(runs)))
        drawn.append(_compared_tokens(probes, labels(runs)))
    return Section(
        "geometry", "Geometry of the gradient", text=text,
        figures=[*(figure for figure in drawn if figure is not None), *steps.curves(runs)],
        tables=tables, numbers=_numbers(probes),
    )  # fmt: skip


_WEIGHED = ", and of what they weigh in the gradient"
_TOKENS = (
    f"Share held by the largest tokens: of the squared score norms ‖e_y − π‖² at the logits{_WEIGHED}. The axis of "
    "tokens is logarithmic."
)


def token_sizes(record: ProbeRecord) -> tuple[Floats, Floats]:
    """Score norms and |weight| × score norm of all tokens, (tokens,) each; empty without tokens.jsonl."""
    rows = record.read_rollouts()
    norms, masses = (np.array([v for row in rows for v in getattr(row, name)], float) for name in ("norm", "mass"))
    return norms[np.isfinite(norms)], masses[np.isfinite(masses)]


def _weightings(record: ProbeRecord) -> PageTable | None:
    rows = []
    for name, ranks in record.weightings.items():
        cells = [ranged(ranks.layer[key]) if key == "stable" else number(ranks.layer[key].value) for key in SHOWN]
        others = [kind["stable"] if kind else math.nan for kind in (ranks.rollout, ranks.token)]
        rows.append((visible(name), *cells, *(number(v) if math.isfinite(v) else "not measured" for v in others)))
    header = ("gradient", *SHOWN.values(), "rollouts, stable", "tokens, stable")
    text = (
        "Ranks of the layers' gradients, mean over matrices, and of the matrices with a row per rollout and per token."
    )
    return PageTable("Ranks of every gradient", header, rows, text, folded=True) if rows else None


def _layers(record: ProbeRecord) -> PageTable | None:
    layers = charts.layers(record)
    rows = []
    for layer in layers[:ROWS]:
        spectrum = layer.spectra[record.recipe]
        cells = [number(spectrum.ranks[key]) for key in SHOWN]
        shape = " × ".join(map(str, layer.shape))
        rows.append((visible(layer.name), shape, *cells, percent(spectrum.left_out, 1), number(layer.score_norm)))
    header = ("matrix", "shape", *SHOWN.values(), "not enclosed", "score norm")
    left = f" {len(layers) - ROWS} further matrices are in probe.json." if len(layers) > ROWS else ""
    text = (
        f"Not enclosed: share of the squared norm outside the singular values computed, whose ranks are bounds.{left}"
    )
    return PageTable("Ranks of every matrix", header, rows, text, folded=True) if rows else None


def _statistics(record: ProbeRecord) -> PageTable | None:
    rows = [
        (visible(name), visible(part), ranged(value), f"{value.n:,}")
        for name, estimates in record.statistics.items()
        for part, value in estimates.items()
    ]
    header = ("statistic", "of", "value", "n")
    return PageTable("Further statistics", header, rows, "In brackets: 95% intervals.", folded=True) if rows else None


def _compared_tokens(probes: Sequence[tuple[str, Run, ProbeRecord]], order: Sequence[str]) -> Figure | None:
    sizes = []
    for label, _, record in probes:
        try:
            sizes.append((label, token_sizes(record)[0] ** 2))
        except UserError:
            continue  # the viewer of rollouts says why
    return charts.tokens(sizes, "How few tokens carry it", _TOKENS.replace(_WEIGHED, ""), order)


def _compared(probes: Sequence[tuple[str, Run, ProbeRecord]]) -> PageTable:
    rows = [
        (
            label, "" if record.step is None else f"{record.step:,}", geometry.solved(record),
            ranged(record.rank("stable")), ranged(record.rank("participation")), percent(record.groups.dead.value),
            percent(record.token_sparsity["top_5"]), ranged(record.baseline.covariance),
        )
        for label, _, record in probes
    ]  # fmt: skip
    header = (
        "probe",
        "step",
        "rewards",
        "stable rank",
        "participation",
        "dead groups",
        "top 5% of tokens",
        "b* − mean",
    )
    return PageTable("The last probe of each run", header, rows, "In brackets: 95% intervals.")


def _numbers(probes: Sequence[tuple[str, Run, ProbeRecord]]) -> dict[str, Any]:
    """Everything but the single layers and prompts, which probe.json has."""
    return {label: record.summary() | {"probe": str(record.folder), "step": record.step} for label, _, record in probes}
