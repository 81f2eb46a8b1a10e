"""Reward of the training batches, and accuracy on held-out problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from grposcope.facts import learning
from grposcope.facts.intervals import interval
from grposcope.facts.learning import change
from grposcope.facts.metrics import outline
from grposcope.formatting import number
from grposcope.report.charts import learning as charts
from grposcope.report.elements import PageTable, Section
from grposcope.runs.run import Run, labels


def section(runs: Sequence[Run]) -> Section | None:
    """Reward, held-out pass@1 with 95% intervals, and for one run every pass@k."""
    drawn = [charts.reward(runs), charts.accuracy(runs), charts.pass_at_k(runs) if len(runs) == 1 else None]
    figures = [figure for figure in drawn if figure is not None]
    if not figures:
        return None
    numbers = {
        label: {
            "reward": outline(run.table["reward"]) if "reward" in run.table else None,
            "heldout": heldout(run),
        }
        for label, run in zip(labels(runs), runs, strict=True)
    }
    return Section("learning", "Reward and held-out accuracy", figures=figures, tables=_table(runs), numbers=numbers)


def heldout(run: Run) -> dict[str, Any] | None:
    """First and last accuracy with intervals, and the verdict on their difference; None without evaluations."""
    evaluations = learning.evaluations(run)
    if not evaluations:
        return None
    (first_step, first), (last_step, last) = evaluations[0], evaluations[-1]
    said: dict[str, Any] = {
        "first": {"step": first_step, **asdict(first), "interval": list(interval(first))},
        "last": {"step": last_step, **asdict(last), "interval": list(interval(last))},
    }
    if len(evaluations) > 1:
        changed = change(first, last)
        said["change"] = {**asdict(changed.difference), "verdict": changed.verdict}
    return said


def _table(runs: Sequence[Run]) -> tuple[PageTable, ...]:
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        table = run.evaluations
        for i in range(len(table)):
            estimate = learning.at(table, i)
            rows.append(
                (label, f"{table.step[i]:,}", table.metric[i], number(estimate.value), number(estimate.se),
                 f"{estimate.n:,}", estimate.flag)
            )  # fmt: skip
    if not rows:
        return ()
    shown, left = rows[:400], len(rows) - 400
    more = f" {left:,} further rows are in evals.jsonl." if left > 0 else ""
    header = ("run", "step", "metric", "value", "standard error", "problems", "note")
    return (PageTable("All held-out evaluations", header, shown, f"As recorded.{more}", folded=True),)
