"""Where the time goes: seconds per step by phase, and tokens per second."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from grposcope.formatting import duration, percent
from grposcope.report.charts import base
from grposcope.report.charts import timing as charts
from grposcope.report.charts.timing import PHASES, PROBES, REST
from grposcope.report.elements import PageTable, Section
from grposcope.runs.run import Floats, Run, labels


def section(runs: Sequence[Run]) -> Section | None:
    """Time per step by phase for one run, a table of totals, and the speed of all."""
    parts = [phases(run) for run in runs]
    if not any(parts):
        return None
    drawn = [
        charts.stack(runs[0], parts[0]) if len(runs) == 1 and runs[0].steps else None,
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
        tables=[PageTable("Time by phase", header, rows, text)],
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
