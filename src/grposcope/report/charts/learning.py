"""Charts of learning: the reward of the training batches, and the accuracy on held-out problems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from grposcope.facts import learning
from grposcope.facts.learning import interval, shown_interval
from grposcope.report.charts import base
from grposcope.report.elements import Figure
from grposcope.runs.run import Run, labels

KEPT = 150
"""Evaluations drawn per run and metric."""


def reward(runs: Sequence[Run]) -> Figure | None:
    """Reward of the training batches; on an axis from 0 to 1 where all are shares."""
    columns = [run.table["reward"] for run in runs if "reward" in run.table]
    shares = bool(columns) and all(((c >= 0) & (c <= 1) | ~(abs(c) < math.inf)).all() for c in columns)
    return base.curve("reward", runs, {"domain": [0, 1]} if shares else None)


def _points(run: Run, name: str) -> dict[str, list[Any]]:
    rows = run.evaluations.of(name)
    kept = base.extremes(rows.value, KEPT // 2)
    accuracies = [learning.at(rows, int(i)) for i in kept]
    ends = [interval(accuracy) for accuracy in accuracies]
    return {
        "step": base.short(rows.step[kept].astype(float), 9),
        "value": base.short(rows.value[kept]),
        "low": base.short([low for low, _ in ends]),
        "high": base.short([high for _, high in ends]),
        "interval": [shown_interval(accuracy) for accuracy in accuracies],
        "n": [int(rows.n[i]) for i in kept],
        "metric": [name] * len(kept),
    }


def accuracy(runs: Sequence[Run]) -> Figure | None:
    """pass@1 with error bars, a colour per run."""
    have = [i for i, run in enumerate(runs) if "pass@1" in run.evaluations.metrics]
    if not have:
        return None
    data = base.joined([_points(runs[i], "pass@1") for i in have], [labels(runs)[i] for i in have])
    x, y = base.step_axis(), _share_axis("value")
    colours = base.run_colours(runs)
    tips = [
        *([{"field": "run"}] if len(runs) > 1 else []),
        {"field": "step", "type": "quantitative", "format": ","},
        {"field": "value", "type": "quantitative", "format": ".1%", "title": "pass@1"},
        {"field": "interval", "title": "95% interval"},
        {"field": "n", "title": "problems"},
    ]
    source = {"data": {"name": "points"}}
    bars = {"x": x, "y": _share_axis("low"), "y2": {"field": "high"}, "color": colours}
    shared = {"x": x, "y": y, "color": colours}
    layers = [
        {**source, "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.55}, "encoding": bars},
        {**source, "mark": {"type": "line", "strokeWidth": 1.5}, "encoding": shared},
        {**source, "mark": {"type": "point", "filled": True, "size": 36, "opacity": 1}, "encoding": shared},
        base.hover(source, {**shared, "tooltip": tips}),
    ]
    text = "Share of completions of held-out problems that were right, with 95% intervals over problems."
    most = max(len(runs[i].evaluations.of("pass@1")) for i in have)
    if most > KEPT:
        every = math.ceil(most / (KEPT // 2))
        text += f" Drawn: the lowest and the highest of every {every} evaluations."
    return Figure("heldout", "Held-out accuracy, pass@1", base.spec(layers), {"points": data}, caption=text)


def pass_at_k(runs: Sequence[Run]) -> Figure | None:
    """Every pass@k of one run, a shade per k."""
    run = runs[0]
    names = [name for name in run.evaluations.metrics if name.startswith("pass@")]
    if len(names) < 2:
        return None
    data = base.joined([_points(run, name) for name in names], [labels(runs)[0]] * len(names))
    shades = {"field": "metric", "type": "ordinal", "sort": names, "scale": {"domain": names, "range": _fading(names)},
              "legend": {"symbolType": "stroke", "symbolStrokeWidth": 3, "columns": 4}}  # fmt: skip
    shared = {"x": base.step_axis(), "y": _share_axis("value"), "opacity": shades}
    tips = [
        {"field": "metric"},
        {"field": "step", "type": "quantitative", "format": ","},
        {"field": "value", "type": "quantitative", "format": ".1%", "title": "share"},
        {"field": "interval", "title": "95% interval"},
    ]
    source, look = {"data": {"name": "points"}}, {"color": "var(--run-1)"}
    layers = [
        {**source, "mark": {"type": "line", "strokeWidth": 2, **look}, "encoding": shared},
        {
            **source,
            "mark": {"type": "point", "filled": True, "size": 40, **look},
            "encoding": {**shared, "tooltip": tips},
        },
    ]
    text = (
        "Share of held-out problems with at least one right answer among k. Where pass@1 rises and the "
        "largest k does not, the policy answers more surely but solves no new problems."
    )
    return Figure("pass_at_k", "Held-out pass@k", base.spec(layers), {"points": data}, caption=text)


def _share_axis(field: str) -> dict[str, Any]:
    axis = {"format": "~%", "title": None}
    return {"field": field, "type": "quantitative", "axis": axis, "scale": {"domain": [0, 1]}}


def _fading(names: Sequence[str]) -> list[float]:
    return [round(1 - 0.75 * i / max(len(names) - 1, 1), 2) for i in range(len(names))]
