"""Chart of the time per step, by phase."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from grposcope.facts.timing import PHASES, REST
from grposcope.report.charts import base
from grposcope.report.elements import Figure
from grposcope.runs.run import Floats, Run

WINDOWS = 60


def stack(run: Run, parts: Mapping[str, Floats]) -> Figure:
    """Mean seconds per step and phase over windows of steps, stacked."""
    size = base.window_size([run], WINDOWS)
    edges = base.window_edges(run.steps, size)
    step = run.table["step"]
    data: dict[str, list[Any]] = {
        name: [] for name in ("from", "to", "steps", "phase", "order", "low", "high", "seconds")
    }
    for start, stop in itertools.pairwise(edges):
        first, last = int(step[start]), int(step[stop - 1])
        level = 0.0
        for order, (name, column) in enumerate(parts.items()):
            finite = column[start:stop][np.isfinite(column[start:stop])]
            seconds = float(finite.mean()) if len(finite) else 0.0
            span = f"{first:,}-{last:,}" if first < last else f"{first:,}"
            row = (first - 0.5, last + 0.5, span, name, order, *base.short([level, level + seconds, seconds]))
            for key, value in zip(data, row, strict=True):
                data[key].append(value)
            level += seconds
    names = list(parts)
    shades = ["var(--run-1)", "var(--run-2)", "var(--run-3)", "var(--run-4)", "var(--rest)"]
    range_ = [shades[[*PHASES.values(), REST].index(name)] for name in names]
    colours = {"field": "phase", "type": "nominal", "sort": names, "scale": {"domain": names, "range": range_},
               "legend": {"symbolType": "square"}}  # fmt: skip
    layer = {
        "data": {"name": "windows"},
        "mark": {"type": "rect", "opacity": 0.85},
        "encoding": {
            "x": {**base.step_axis(), "field": "from"},
            "x2": {"field": "to"},
            "y": {"field": "low", "type": "quantitative", "axis": {"title": None}, "scale": {"zero": True}},
            "y2": {"field": "high"},
            "color": colours,
            "tooltip": [{"field": "phase"}, {"field": "steps"},
                        {"field": "seconds", "type": "quantitative", "format": ".3~g", "title": "seconds per step"}],
        },
    }  # fmt: skip
    text = "Seconds per optimiser step" + (f", mean of {size:,} steps." if size > 1 else ".")
    return Figure("seconds", "Time per step", base.spec([layer]), {"windows": data}, "s", text)
