"""Where the time goes: seconds per step by phase, and tokens per second."""

from __future__ import annotations

from collections.abc import Sequence

from grposcope.facts import timing
from grposcope.facts.timing import PHASES, PROBES, REST
from grposcope.formatting import duration, percent
from grposcope.report.charts import timing as charts
from grposcope.report.charts.curves import curve
from grposcope.report.elements import PageTable, Section
from grposcope.runs.run import Run, labels


def section(runs: Sequence[Run]) -> Section | None:
    """Time per step by phase for one run, a table of totals, and the speed of all."""
    times = [timing.of_run(run) for run in runs]
    if not any(one.phases for one in times):
        return None
    drawn = [
        charts.stack(runs[0], times[0].phases) if len(runs) == 1 and runs[0].steps else None,
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
