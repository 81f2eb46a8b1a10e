"""Section on where the time goes: seconds per step by phase, and tokens per second."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np

from grposcope.facts import timing
from grposcope.facts.timing import PHASES, PROBES, REST
from grposcope.formatting import duration, percent
from grposcope.report.charts import base, thinning
from grposcope.report.charts.curves import curve
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs.run import Floats, Run, labels

SHADES = dict(zip((*PHASES.values(), REST), (*(f"var(--run-{i})" for i in range(1, 5)), "var(--rest)"), strict=True))
WINDOWS = 60


def section(runs: Sequence[Run]) -> Section | None:
    """Time per step by phase for one run, a table of totals, and the speed of all."""
    times = [timing.of_run(run) for run in runs]
    if not any(one.phases for one in times):
        return None
    drawn = [
        stack(runs[0], times[0].phases) if len(runs) == 1 and runs[0].steps else None,
        curve("tokens_per_second", runs),
    ]
    phases = [name for name in (*PHASES.values(), REST) if name != PROBES or any(name in one.phases for one in times)]
    header = ("run", *phases, "total", "tokens")
    rows = []
    for label, one in zip(labels(runs), times, strict=True):
        seconds, total = one.seconds, one.total
        cells = [
            f"{duration(seconds[name])} ({percent(seconds[name] / total)})" if name in seconds and total
            else "not recorded"
            for name in phases
        ]  # fmt: skip
        rows.append((label, *cells, duration(total), f"{one.tokens:,.0f}"))
    text = f"From the rows of steps.jsonl. {REST.capitalize()}: what passed between two rows besides these phases."
    return Section(
        "time", "Time and tokens",
        figures=[figure for figure in drawn if figure is not None],
        tables=[PageTable("Time by phase", header, rows, text)],
        numbers={
            label: {**one.seconds, "seconds": one.total, "tokens": one.tokens}
            for label, one in zip(labels(runs), times, strict=True)
        },
    )  # fmt: skip


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
    y = alt.Y("low:Q").scale(zero=True)
    bars = base.dataset("windows").mark_rect(opacity=0.85)
    bars = bars.encode(base.steps("from"), y, colours, alt.X2("to"), alt.Y2("high"), tooltip=tips)
    text = "Seconds per optimiser step" + (f", mean of {size:,} steps." if size > 1 else ".")
    return base.figure("seconds", "Time per step", [bars], data, unit="s", caption=text)
