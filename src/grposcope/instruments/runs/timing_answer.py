"""Answer on where the time goes: seconds per step by phase, and tokens per second."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from grposcope.core.answer import Answer, Figure, Table
from grposcope.core.run import Floats, Run, labels
from grposcope.core.text import capitalised, duration, percent
from grposcope.instruments.runs import TIMING, timing
from grposcope.instruments.runs.timing import PHASES, PROBES, REST, Timing
from grposcope.render import charts as base
from grposcope.render import thinning
from grposcope.render.curves import curve

SHADES = dict(zip((*PHASES.values(), REST), (*(f"var(--run-{i})" for i in range(1, 5)), "var(--rest)"), strict=True))
WINDOWS = 60


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """What took longest, time per step by phase for one run, a table of totals, and the speed of all."""
    times = [timing.of_run(run) for run in runs]
    if not any(timing.phases for timing in times):
        return []
    drawn = [
        _stack(runs[0], times[0].phases) if len(runs) == 1 and runs[0].steps else None,
        curve("tokens_per_second", runs),
    ]
    phases = [
        name for name in (*PHASES.values(), REST) if name != PROBES or any(name in timing.phases for timing in times)
    ]
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
    text = f"From the rows of steps.jsonl. {REST.capitalize()}: time between two rows that is in none of these phases."
    said = [(label, _longest(timing)) for label, timing in zip(labels(runs), times, strict=True) if timing.total]
    answer = Answer(
        "time", TIMING.question,
        sentence=" ".join(f"{label}: {text}" if len(runs) > 1 else capitalised(text) for label, text in said),
        figures=[figure for figure in drawn if figure is not None],
        tables=[Table("Time by phase", header, rows, text)],
        document={
            label: {**timing.seconds, "seconds": timing.total, "tokens": timing.tokens}
            for label, timing in zip(labels(runs), times, strict=True)
        },
    )  # fmt: skip
    return [answer]


def _longest(timing: Timing) -> str:
    """The phase of a run that took longest."""
    name, seconds = max(timing.seconds.items(), key=lambda pair: pair[1])
    return f"{name} took the largest part, {percent(seconds / timing.total)} of {duration(timing.total)}."


def _stack(run: Run, parts: Mapping[str, Floats]) -> Figure:
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
