"""The top of the page: what `facts.headline` says of a run or a probe, and a table for several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grposcope.facts import headline as facts
from grposcope.facts import learning, timing
from grposcope.facts.intervals import shown_interval
from grposcope.facts.metrics import outline
from grposcope.formatting import duration, percent
from grposcope.records import Estimate
from grposcope.report.elements import PageTable, Section
from grposcope.runs.run import Run, labels

CHANGED = {"up": "rose", "down": "fell", "none": "within noise", "unknown": "cannot tell"}


def headline(runs: Sequence[Run]) -> Section:
    """Sentences and large numbers for one run, a sentence and a table for several."""
    each = [facts.of_run(run) for run in runs]
    numbers = {label: _numbers(run, one.sentence) for label, run, one in zip(labels(runs), runs, each, strict=True)}
    if len(runs) == 1:
        return Section("headline", each[0].sentence, each[0].details, each[0].numbers, numbers=numbers)
    tables = [] if all(facts.is_probe(run) for run in runs) else [_table(runs)]
    return Section("headline", facts.of_several(runs), tables=tables, numbers=numbers)


def _table(runs: Sequence[Run]) -> PageTable:
    """A row per run: its held-out accuracy at both ends, dead groups and time."""
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        learned = learning.of_run(run)
        compared = ("none", "none", "cannot tell")
        if learned.evaluations:
            first, last = learned.evaluations[0][1], learned.evaluations[-1][1]
            changed = CHANGED[learned.verdict] if len(learned.evaluations) > 1 else "one only"
            compared = (_with_interval(first), _with_interval(last), changed)
        dead = "not recorded"
        if "dead_fraction" in run.table and run.steps:
            dead = percent(outline(run.table["dead_fraction"]).last_tenth.value)
        rows.append((label, run.meta.status, f"{run.steps:,}", *compared, dead, duration(timing.of_run(run).total)))
    header = ("run", "status", "steps", "held-out first", "held-out last", "change", "dead groups at the end", "time")
    text = "Held-out pass@1 with 95% intervals. Dead groups: mean of the last tenth of the steps."
    return PageTable("", header, rows, text)


def _with_interval(accuracy: Estimate) -> str:
    return f"{percent(accuracy.value, 1)} ({shown_interval(accuracy)})"


def _numbers(run: Run, sentence: str) -> dict[str, Any]:
    return {
        "status": run.meta.status,
        "steps": run.steps,
        "source": str(run.meta.source),
        "sentence": sentence,
        "not_finite": run.nonfinite,
        "notes": list(run.meta.notes),
    }
