"""Where the time goes: seconds per step by phase, and tokens per second."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from grposcope.formatting import duration, percent
from grposcope.report.charts import base
from grposcope.report.elements import Figure, Section, Table
from grposcope.runs.run import Floats, Run, labels

PROBES = "probes"
PHASES = {
    "seconds_sample": "sampling",
    "seconds_grade": "grading",
    "seconds_update": "update",
    "seconds_probe": PROBES,
}
REST = "evaluation and other"
WINDOWS = 60


def section(runs: Sequence[Run]) -> Section | None:
    """Time per step by phase for one run, a table of totals, and the speed of all."""
    parts = [phases(run) for run in runs]
    if not any(parts):
        return None
    drawn = [
        _stack(runs[0], parts[0]) if len(runs) == 1 and runs[0].steps else None,
        base.curve("tokens_per_second", runs),
    ]
    numbers = {label: _numbers(run, part) for label, run, part in zip(labels(runs), runs, parts, strict=True)}
    names = [name for name in (*PHASES.values(), REST) if name != PROBES or any(name in part for part in parts)]
    header = ("run", *names, "total", "tokens")
    rows = []
    for label, said in numbers.items():
        total = said["seconds"]
        cells = [
            f"{duration(said[n])} ({percent(said[n] / total)})" if n in said and total else "not recorded"
            for n in names
        ]
        rows.append((label, *cells, duration(total), f"{said['tokens']:,.0f}"))
    text = f"From the rows of steps.jsonl. {REST.capitalize()}: what passed between two rows besides these phases."
    return Section(
        "time", "Time and tokens",
        figures=[figure for figure in drawn if figure is not None],
        tables=[Table("Time by phase", header, rows, text)],
        numbers=numbers,
    )  # fmt: skip


def phases(run: Run) -> dict[str, Floats]:
    """Seconds of every step by phase; the rest only where rows carry the time they were written."""
    found = {name: run.table[key] for key, name in PHASES.items() if key in run.table}
    if PROBES in found:
        found[PROBES] = np.nan_to_num(found[PROBES])  # only on some steps
    if found and "time" in run.table and run.steps > 1:
        named = np.nansum(list(found.values()), axis=0)
        found[REST] = np.clip(np.diff(run.table["time"], prepend=math.nan) - named, 0, None)
    return found


def _numbers(run: Run, parts: dict[str, Floats]) -> dict[str, float]:
    sums = {name: float(np.nansum(column)) for name, column in parts.items()}
    tokens = float(np.nansum(run.table["tokens"])) if "tokens" in run.table else math.nan
    return {**sums, "seconds": sum(sums.values()), "tokens": tokens}


def _stack(run: Run, parts: dict[str, Floats]) -> Figure:
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
