"""Charts of dead groups over training: seen and expected, and how many rollouts of a group succeed."""

from __future__ import annotations

from typing import Any

import numpy as np

from grposcope.facts.dead_groups import Windows
from grposcope.facts.learning import interval
from grposcope.formatting import percent
from grposcope.report.charts import base
from grposcope.report.elements import Figure
from grposcope.ustat import dead_groups


def predicted(found: Windows) -> Figure:
    """Observed share with intervals, the prediction, and the floor for prompts that are all alike."""
    middle = (found.first + found.last) / 2
    steps = [f"{a:,}-{b:,}" if a < b else f"{a:,}" for a, b in zip(found.first, found.last, strict=True)]
    kinds = {"seen": dead_groups.observed, "expected": dead_groups.predicted, "equal prompts": dead_groups.alike}
    data: dict[str, list[Any]] = {name: [] for name in ("step", "steps", "kind", "value", "low", "high", "shown", "n")}
    for kind, function in kinds.items():
        for at, span, counts in zip(middle, steps, found.counts, strict=True):
            estimate = function(counts)
            low, high = interval(estimate) if kind == "seen" else estimate.interval()
            row = (float(at), span, kind, estimate.value, max(low, 0), min(high, 1))
            shown = f"{percent(row[3], 1)} ({percent(row[4])} to {percent(row[5])})"
            for name, value in zip(data, (*row, shown, estimate.n), strict=True):
                data[name].append(base.short([value])[0] if isinstance(value, float) else value)
    names = list(kinds)
    legend = {"symbolType": "stroke", "symbolStrokeWidth": 2, "symbolSize": 180, "symbolOpacity": 1, "columns": 3}
    colours = {"field": "kind", "type": "nominal", "sort": names, "legend": legend,
               "scale": {"domain": names, "range": ["var(--run-1)", "var(--run-2)", "var(--muted)"]}}  # fmt: skip
    dashes = {"field": "kind", "type": "nominal", "sort": names, "legend": legend,
              "scale": {"domain": names, "range": [[1, 0], [6, 4], [2, 4]]}}  # fmt: skip
    axis: dict[str, Any] = {
        "type": "quantitative",
        "scale": {"domain": [0, 1]},
        "axis": {"format": "~%", "title": None},
    }
    x = base.step_axis()
    tips = [{"field": "kind", "title": "share"}, {"field": "steps"}, {"field": "shown", "title": "value (95%)"},
            {"field": "n", "title": "groups"}]  # fmt: skip
    source = {"data": {"name": "windows"}}
    band = [{"filter": "datum.kind != 'equal prompts'"}]
    shared = {"x": x, "y": {**axis, "field": "value"}, "color": colours}
    layers: list[dict[str, Any]] = [
        {**source, "transform": band, "mark": {"type": "area", "opacity": 0.14},
         "encoding": {"x": x, "y": {**axis, "field": "low"}, "y2": {"field": "high"}, "color": colours}},
        {**source, "mark": {"type": "line", "strokeWidth": 2}, "encoding": {**shared, "strokeDash": dashes}},
        base.hover(source, {**shared, "tooltip": tips}),
    ]  # fmt: skip
    per = int(np.median(found.counts.sum(1)))
    group = found.counts.shape[1] - 1
    text = (
        f"Share of groups whose {group} rewards were all equal, over windows of about {per} groups, with 95% bands. "
        "Expected: p^G + (1−p)^G averaged over prompts, p spread as a Beta distribution with the moments that "
        "pairs of rollouts give without bias. Equal prompts: the same if all had the average p."
    )
    return Figure("dead_groups", "Dead groups, seen and expected", base.spec(layers), {"windows": data}, caption=text)


def successes(found: Windows) -> Figure:
    """How many rollouts of a group succeed, as a map over training."""
    group = found.counts.shape[1] - 1
    shares = found.counts / found.counts.sum(1, keepdims=True)
    rows: dict[str, list[Any]] = {"from": [], "to": [], "low": [], "high": [], "right": [], "share": [], "steps": []}
    for i, (a, b) in enumerate(zip(found.first, found.last, strict=True)):
        for k in range(group + 1):
            values = (int(a) - 0.5, int(b) + 0.5, k - 0.5, k + 0.5, f"{k} of {group}", round(float(shares[i, k]), 4))
            for name, value in zip(rows, (*values, f"{a:,}-{b:,}" if a < b else f"{a:,}"), strict=True):
                rows[name].append(value)
    x = {**base.step_axis(), "field": "from"}
    ticks = list(range(0, group + 1, max(1, group // 4)))
    y = {"field": "low", "type": "quantitative", "axis": {"values": ticks, "title": None, "grid": False},
         "scale": {"domain": [-0.5, group + 0.5], "nice": False}}  # fmt: skip
    fill = {"field": "share", "type": "quantitative", "legend": None,
            "scale": {"domain": [0, float(shares.max())], "range": [0.03, 1]}}  # fmt: skip
    tips = [{"field": "right"}, {"field": "steps"}, {"field": "share", "type": "quantitative", "format": ".1%",
             "title": "share of groups"}]  # fmt: skip
    layer = {
        "data": {"name": "cells"},
        "mark": {"type": "rect", "color": "var(--run-1)"},
        "encoding": {"x": x, "x2": {"field": "to"}, "y": y, "y2": {"field": "high"}, "opacity": fill, "tooltip": tips},
    }
    text = (
        f"Darker: more groups with that many of {group} rollouts right. The top and bottom rows are the dead groups; "
        "what lies between them is what the update can learn from."
    )
    title = "Right answers per group"
    return Figure("successes", title, base.spec([layer]), {"cells": rows}, f"of {group}", text)
