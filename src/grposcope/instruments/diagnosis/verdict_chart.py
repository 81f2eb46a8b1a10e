"""The one chart that a verdict rests on: the outcome, and the curve that contradicts or explains it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import numpy as np

from grposcope.core.answer import Figure
from grposcope.core.finding import Finding
from grposcope.core.metrics import metric, variant
from grposcope.core.run import Run
from grposcope.core.text import digits_of_shares, visible
from grposcope.instruments.diagnosis import figures, learning
from grposcope.maths.intervals import interval
from grposcope.render import charts as base
from grposcope.render import thinning
from grposcope.render.thinning import rounded
from grposcope.signs import heldout, levels, run_outcome

KEPT = 150
"""Evaluations that are drawn, at most about."""

NARROW = 36
"""Characters of both names together up to which they stand side by side in the legend."""

LONGEST = 60
"""Characters of the name of a curve."""


@dataclass(frozen=True)
class _Curve:
    """A curve: its name, its points as columns of one length, and the ends of its axis.

    low, high: ends of the 95 % intervals; empty without any. key: the metric, for its colour. levels: step, value and
    text of each level that the headline tells. share: it lies between 0 and 1, and so does its axis.
    """

    name: str
    step: Sequence[Any]
    value: Sequence[Any]
    low: Sequence[Any] = ()
    high: Sequence[Any] = ()
    share: bool = False
    key: str = ""
    levels: Sequence[tuple[int, float, str]] = ()

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the vertical axis: 0 and 1 for a share, else a margin beyond the values and the intervals."""
        if self.share:
            return 0.0, 1.0
        finite = [v for v in (*self.value, *self.low, *self.high) if v is not None and math.isfinite(v)]
        least, largest = min(finite), max(finite)
        margin = 0.06 * (largest - least) or 0.5
        return (0.0 if 0 <= least < 0.5 * largest else least - margin), largest + margin


def of_run(run: Run, findings: Sequence[Finding]) -> Figure | None:
    """The chart of a run with its findings, the most important first; None where no outcome is logged."""
    run = run.scopes.get(run_outcome.of_run(run).task, run)
    bad = next((worst for worst in findings if worst.status == "present" and worst.grade != "note"), None)
    cause = _cause(run, bad)
    outcome = [curve for curve in (_reward(run), _heldout(run)) if curve is not None]
    curves = [*outcome[-1:], cause] if cause is not None else outcome
    if not curves:
        return None
    told = levels.of_run(run)
    if told is not None:
        key = "heldout" if told.heldout else told.name
        curves = [replace(curve, levels=_levels(told)) if curve.key == key else curve for curve in curves]
    onset = None if bad is None else bad.onset
    return _figure(curves, onset, bad.fault if bad is not None else "")


def _levels(told: levels.Levels) -> list[tuple[int, float, str]]:
    """The first, best and last level as the headline tells them, each of those that look alike once."""
    ends = ((told.first_step, told.first), (told.last_step, told.last), (told.best_step, told.best))
    digits = digits_of_shares(*(level.value for _, level in ends))
    shown = {heldout.shown(level.value, told.shares, digits): (step, level.value) for step, level in reversed(ends)}
    return [(step, value, text) for text, (step, value) in shown.items() if math.isfinite(value)]


def _reward(run: Run) -> _Curve | None:
    name = variant("reward", run.table)
    return None if name is None else _column(run, name)


def _heldout(run: Run) -> _Curve | None:
    """The held-out score that is looked at, where it was evaluated twice or more."""
    scored = learning.evaluations(run)
    if len(scored) < 2:
        return None
    shown = thinning.extremes(np.array([score.value for _, score in scored]), KEPT // 2)
    chosen = [scored[int(i)] for i in shown]
    ends = [interval(score) for _, score in chosen]
    return _Curve(
        visible(f"held-out {heldout.name(learning.score(run))}", LONGEST),
        [step for step, _ in chosen],
        rounded(score.value for _, score in chosen),
        rounded(low for low, _ in ends),
        rounded(high for _, high in ends),
        heldout.are_shares(score.value for _, score in scored),
        "heldout",
    )


def _cause(run: Run, finding: Finding | None) -> _Curve | None:
    """The curve that a finding was measured on, where it is neither the reward nor a held-out score."""
    if finding is None:
        return None
    columns = [name for name in figures.evident(finding, run.table) if "reward" not in name]
    moved = {sign.column: sign for sign in finding.evidence if sign.column in columns and sign.value != 0}
    drawn = (_column(run, name) for name in [*moved, *columns])
    return next((chart for chart in drawn if chart is not None), None)


def _column(run: Run, name: str) -> _Curve | None:
    """A metric of the steps, in means over windows where the run is long; None without two finite values."""
    values = run.table[name]
    if np.isfinite(values).sum() < 2:
        return None
    means = thinning.averages(run.table["step"], values, thinning.window_size([run]))
    finite = values[np.isfinite(values)]
    share = metric(name).unit == "share" or (name == "reward" and bool(((finite >= 0) & (finite <= 1)).all()))
    title = metric(name).title
    return _Curve(
        visible(title[:1].lower() + title[1:] if title[1:2].islower() else title, LONGEST),
        means["step"],
        means["mean"],
        share=share,
        key=name,
    )


def _figure(curves: Sequence[_Curve], onset: int | None, mode: str) -> Figure:
    """Both curves over the steps, on one axis where both are shares, else on one each; the onset as a dashed line."""
    together = all(curve.share for curve in curves)
    shades = {curve.name: base.metric_colour(curve.key) for curve in curves}
    columns = 1 if sum(map(len, shades)) > NARROW else 2
    legend = alt.Legend(symbolType="stroke", symbolStrokeWidth=3, columns=columns, labelLimit=280)
    layers: list[alt.Chart] = []
    data: dict[str, Any] = {}
    for index, curve in enumerate(curves):
        key = f"curve_{index + 1}"
        points = {"step": list(curve.step), "value": list(curve.value), "curve": [curve.name] * len(curve.step)}
        if curve.low:
            points |= {"low": list(curve.low), "high": list(curve.high)}
        data[key] = points
        axis = alt.Axis(
            format="~%" if curve.share else alt.Undefined, orient="right" if index and not together else "left",
            grid=together or index == 0,
            labelColor=shades[curve.name] if len(curves) > 1 and not together else "var(--muted)",
        )  # fmt: skip
        colours = base.colours("curve", shades, legend)
        layers += _layers(key, curve, axis, together, colours)
        if curve.levels:
            step, value, text = (list(column) for column in zip(*curve.levels, strict=True))
            data["levels"] = {"step": step, "value": value, "text": text, "curve": [curve.name] * len(step)}
            layers += _level_marks(curve, axis if together else None, colours, max(curve.step))
    if onset is not None:
        data["onset"] = {"step": [float(onset)], "mode": [mode]}
        rule = base.dataset("onset").mark_rule(color="var(--alarm)", strokeDash=[4, 3], strokeWidth=1.5)
        layers.append(rule.encode(base.steps(), tooltip=base.tooltips(mode="since", step="step")))
    title = " and ".join(one.name for one in curves)
    title, caption = title[:1].upper() + title[1:], _caption(curves, onset, mode, together)
    drawn = base.figure("verdict", title, layers, data, caption=caption, height=230, wide=True)
    return drawn if together else base.independent(drawn, "y")


def _level_marks(curve: _Curve, axis: alt.Axis | None, colours: alt.Color, end: float) -> list[alt.Chart]:
    """A bar and the number at each level that the headline tells; those at the end stand left of it."""
    up = alt.Y("value:Q", axis=axis, scale=alt.Scale(domain=list(curve.ends), nice=False, zero=False))
    level = base.dataset("levels").encode(base.steps(), up, colours)
    number = level.encode(alt.Text("text:N"))
    near = f"datum.step > {end / 2:g}"
    return [
        level.mark_tick(orient="horizontal", thickness=3, size=26),
        number.transform_filter(f"!({near})").mark_text(align="left", dy=-11, fontWeight="bold", fontSize=12),
        number.transform_filter(near).mark_text(align="right", dy=-11, dx=8, fontWeight="bold", fontSize=12),
    ]


def _layers(key: str, curve: _Curve, axis: alt.Axis, together: bool, colours: alt.Color) -> list[alt.Chart]:
    """Line of a curve, its points, and its intervals; only the first has the axis, unless all layers share one."""
    hidden = axis if together else None

    def vertical(field: str, shown: alt.Axis | None = hidden) -> alt.Y:
        return alt.Y(f"{field}:Q", axis=shown, scale=alt.Scale(domain=list(curve.ends), nice=False, zero=False))

    tips = [
        alt.Tooltip("curve:N"),
        alt.Tooltip("step:Q", format=","),
        alt.Tooltip("value:Q", format=".1%" if curve.share else ",.3~r"),
    ]
    line = base.dataset(key).encode(base.steps(), vertical("value", axis), colours)
    layers = [line.mark_line(strokeWidth=2)]
    if curve.low:
        drawn = base.dataset(key).encode(base.steps(), colours)
        layers += [
            drawn.mark_rule(strokeWidth=1.5, opacity=0.5).encode(vertical("low"), alt.Y2("high")),
            drawn.mark_point(filled=True, size=36, opacity=1).encode(vertical("value"), tooltip=tips),
        ]
    else:
        points = base.dataset(key).encode(base.steps(), vertical("value"), colours, tooltip=tips)
        layers.append(points.mark_point(filled=True, size=70, opacity=0))
    return layers


def _caption(curves: Sequence[_Curve], onset: int | None, mode: str, together: bool) -> str:
    """What the line at the onset is, which axis is whose, and what the bars are."""
    said = [] if onset is None else [f"Dashed: {mode}, since step {onset:,}."]
    if len(curves) > 1 and not together:
        said.append(f"Left axis: {curves[0].name}; right axis: {curves[1].name}.")
    if any(any(v is not None and math.isfinite(v) for v in curve.low) for curve in curves):
        said.append("Bars: 95% intervals.")
    if any(curve.levels for curve in curves):
        said.append("Numbers: the levels that the headline tells, means of several rows or evaluations.")
    return " ".join(said)
