"""Dead groups: how many there are, how many are to be expected, and what another group size would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from grposcope.facts import dead_groups as facts
from grposcope.facts.dead_groups import Windows
from grposcope.facts.intervals import Z
from grposcope.facts.metrics import outline
from grposcope.formatting import percent
from grposcope.report.charts import dead_groups as charts
from grposcope.report.charts.curves import curve
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs.run import Run, labels
from grposcope.ustat import dead_groups


def section(runs: Sequence[Run]) -> Section | None:
    """Observed and predicted share of dead groups, successes per group, and other group sizes."""
    found = {label: facts.of_run(run) for label, run in zip(labels(runs), runs, strict=True)}
    known = {label: one.windows for label, one in found.items() if one.windows is not None}
    figures: list[Figure] = []
    if len(runs) == 1 and known:
        (windows,) = known.values()
        figures = [charts.predicted(windows), charts.successes(windows)]
    elif (recorded := curve("dead_fraction", runs)) is not None:
        figures = [recorded]
    if not figures:
        return None
    numbers: dict[str, Any] = {}
    for label, run in zip(found, runs, strict=True):
        shares = run.table.get("dead_fraction")
        numbers[label] = {} if shares is None else {"dead_fraction": outline(shares)}
        if label in known:
            numbers[label] |= _numbers(known[label])
    return Section(
        "dead_groups",
        "Dead groups",
        text=[f"{label}: {one.sentence()}" if len(runs) > 1 else one.sentence() for label, one in found.items()],
        figures=figures,
        tables=[_sizes(known)] if known else [],
        numbers=numbers,
    )


def _numbers(windows: Windows) -> dict[str, Any]:
    total, last = windows.counts.sum(0), windows.counts[-1]
    return {
        "groups": int(total.sum()),
        "group_size": windows.group,
        "observed": asdict(windows.observed()),
        "predicted": asdict(windows.expected()),
        "alike": asdict(windows.alike()),
        "plugged_in_biased": dead_groups.plugged_in(total),
        "last_window": {
            "steps": [int(windows.first[-1]), int(windows.last[-1])],
            "observed": asdict(dead_groups.observed(last)),
            "predicted": asdict(dead_groups.predicted(last)),
        },
        "other_sizes_last_window": {str(one.group): asdict(one.share) for one in windows.other_sizes()},
    }


def _sizes(known: Mapping[str, Windows]) -> PageTable:
    """Expected shares for other group sizes, a row per run and size."""
    rows = []
    for label, windows in known.items():
        for one in windows.other_sizes():
            share = "cannot tell" if one.share.flag else percent(one.share.value)
            cells = [str(one.group), f"{share} ± {percent(Z * one.share.se, 1)}", one.basis]
            rows.append([label, *cells] if len(known) > 1 else cells)
    header = ("group size", "dead groups", "how")
    text = "Expected share at the end of the run, in the last window of steps; ± is half a 95% interval."
    return PageTable("With another group size", ("run", *header) if len(known) > 1 else header, rows, text)
