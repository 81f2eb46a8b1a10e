"""Reward of the training batches, and accuracy on held-out problems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import altair as alt

from grposcope.facts import learning
from grposcope.facts.intervals import interval, shown_interval
from grposcope.facts.metrics import outline
from grposcope.formatting import number
from grposcope.report.charts import base
from grposcope.report.charts.curves import curve
from grposcope.report.charts.thinning import extremes, joined, rounded
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs.run import Run, labels

KEPT = 150
"""Evaluations drawn per run and metric."""


def section(runs: Sequence[Run]) -> Section | None:
    """Reward, held-out pass@1 with 95% intervals, and for one run every pass@k."""
    drawn = [reward(runs), accuracy(runs), pass_at_k(runs) if len(runs) == 1 else None]
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
    if not learning.evaluations(run):
        return None
    learned = learning.of_run(run)
    (first_step, first), (last_step, last) = learned.evaluations[0], learned.evaluations[-1]
    said: dict[str, Any] = {
        "first": {"step": first_step, **asdict(first), "interval": list(interval(first))},
        "last": {"step": last_step, **asdict(last), "interval": list(interval(last))},
    }
    if len(learned.evaluations) > 1:
        said["change"] = {**asdict(learned.difference), "verdict": learned.verdict}
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


def reward(runs: Sequence[Run]) -> Figure | None:
    """Reward of the training batches; on an axis from 0 to 1 where all are shares."""
    columns = [run.table["reward"] for run in runs if "reward" in run.table]
    shares = bool(columns) and all(((c >= 0) & (c <= 1) | ~(abs(c) < math.inf)).all() for c in columns)
    return curve("reward", runs, domain=[0, 1] if shares else ())


def accuracy(runs: Sequence[Run]) -> Figure | None:
    """pass@1 with error bars, a colour per run; None without evaluations."""
    evaluated = [
        (label, run) for label, run in zip(labels(runs), runs, strict=True) if "pass@1" in run.evaluations.metrics
    ]
    if not evaluated:
        return None
    data = joined([_points(run, "pass@1") for _, run in evaluated], [label for label, _ in evaluated])
    tips = [
        *([alt.Tooltip("run:N")] if len(runs) > 1 else []),
        alt.Tooltip("step:Q", format=","),
        alt.Tooltip("value:Q", format=".1%", title="pass@1"),
        alt.Tooltip("interval:N", title="95% interval"),
        alt.Tooltip("n:N", title="problems"),
    ]

    points = base.dataset("points").encode(base.steps(), base.share("value"), base.run_colours(runs))
    layers = [
        points.mark_rule(strokeWidth=1.5, opacity=0.55).encode(base.share("low"), alt.Y2("high")),
        points.mark_line(strokeWidth=1.5),
        points.mark_point(filled=True, size=36, opacity=1),
        base.on_hover(points.encode(tooltip=tips)),
    ]
    text = "Share of completions of held-out problems that were right, with 95% intervals over problems."
    most = max(len(run.evaluations.of("pass@1")) for _, run in evaluated)
    if most > KEPT:
        every = math.ceil(most / (KEPT // 2))
        text += f" Drawn: the lowest and the highest of every {every} evaluations."
    return base.figure("heldout", "Held-out accuracy, pass@1", layers, {"points": data}, caption=text)


def pass_at_k(runs: Sequence[Run]) -> Figure | None:
    """Every pass@k of the first run, paler for larger k; None with fewer than two."""
    names = [name for name in runs[0].evaluations.metrics if name.startswith("pass@")]
    if len(names) < 2:
        return None
    data = joined([_points(runs[0], name) for name in names], names, key="metric")
    tips = [
        alt.Tooltip("metric:N"),
        alt.Tooltip("step:Q", format=","),
        alt.Tooltip("value:Q", format=".1%", title="share"),
        alt.Tooltip("interval:N", title="95% interval"),
    ]

    fading = alt.Opacity(
        "metric:O",
        sort=names,
        scale=alt.Scale(domain=names, range=[round(1 - 0.75 * i / (len(names) - 1), 2) for i in range(len(names))]),
        legend=alt.Legend(symbolType="stroke", symbolStrokeWidth=3, columns=4),
    )
    points = base.dataset("points").encode(base.steps(), base.share("value"), fading)
    layers = [
        points.mark_line(strokeWidth=2, color="var(--run-1)"),
        points.mark_point(filled=True, size=40, color="var(--run-1)").encode(tooltip=tips),
    ]
    text = (
        "Share of held-out problems with at least one right answer among k. Where pass@1 rises and the "
        "largest k does not, the policy answers more surely but solves no new problems."
    )
    return base.figure("pass_at_k", "Held-out pass@k", layers, {"points": data}, caption=text)


def _points(run: Run, name: str) -> dict[str, list[Any]]:
    rows = run.evaluations.of(name)
    kept = extremes(rows.value, KEPT // 2)
    accuracies = [learning.at(rows, int(i)) for i in kept]
    ends = [interval(accuracy) for accuracy in accuracies]
    return {
        "step": rounded(rows.step[kept].astype(float), 9),
        "value": rounded(rows.value[kept]),
        "low": rounded(low for low, _ in ends),
        "high": rounded(high for _, high in ends),
        "interval": [shown_interval(accuracy) for accuracy in accuracies],
        "n": [int(rows.n[i]) for i in kept],
    }
