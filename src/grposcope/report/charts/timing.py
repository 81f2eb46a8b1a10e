"""Chart of the time per step, by phase."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import altair as alt
import numpy as np

from grposcope.facts.timing import PHASES, REST
from grposcope.report.charts import base, thinning
from grposcope.report.elements import Figure
from grposcope.runs.run import Floats, Run

SHADES = dict(zip((*PHASES.values(), REST), (*(f"var(--run-{i})" for i in range(1, 5)), "var(--rest)"), strict=True))
WINDOWS = 60


def stack(run: Run, parts: Mapping[str, Floats]) -> Figure:
    """Mean seconds per step of each phase over windows of steps, on top of each other."""
    size = thinning.window_size([run], WINDOWS)
    step = run.table["step"]
    rows = []
    for start, stop in itertools.pairwise(thinning.window_edges(run.steps, size)):
        first, last, level = step[start], step[stop - 1], 0.0
        for name, column in parts.items():
            finite = column[start:stop][np.isfinite(column[start:stop])]
            seconds = float(finite.mean()) if len(finite) else 0.0
            ends = thinning.rounded([level, level + seconds, seconds])
            rows.append((int(first) - 0.5, int(last) + 0.5, thinning.span(first, last), name, *ends))
            level += seconds
    data = {"windows": thinning.columns(("from", "to", "steps", "phase", "low", "high", "seconds"), rows)}
    tips = [
        alt.Tooltip("phase:N"),
        alt.Tooltip("steps:N"),
        alt.Tooltip("seconds:Q", format=".3~g", title="seconds per step"),
    ]
    colours = base.colours("phase", {name: SHADES[name] for name in parts}, alt.Legend(symbolType="square"))
    y = alt.Y("low:Q", scale=alt.Scale(zero=True))
    bars = base.dataset("windows").mark_rect(opacity=0.85)
    bars = bars.encode(base.steps("from"), y, colours, alt.X2("to"), alt.Y2("high"), tooltip=tips)
    text = "Seconds per optimiser step" + (f", mean of {size:,} steps." if size > 1 else ".")
    return base.figure("seconds", "Time per step", [bars], data, unit="s", caption=text)
