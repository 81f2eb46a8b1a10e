"""The page of an evaluation: scores with intervals, differences, what each problem came to, and the completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from grposcope.facts.evaluation import (
    DIFFERENCES,
    EvaluationFacts,
    cells,
    difference_cells,
    header,
    labels,
    shown,
)
from grposcope.formatting import CONTROLS, UNSEEN, listed, visible
from grposcope.report.charts import base
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.report.page import Document
from grposcope.report.sections.rollouts import BUDGET, NAME, PROBLEMS, PROMPT, TEXT, cut
from grposcope.runs.evaluation import Completion, EvaluatedProblem, EvaluationRecord

HOW_TO = (
    "The 95 % intervals are for more problems of this kind, and for an arm of several trainings also for more seeds. "
    "Unread: completions without an answer that the grader can read; they count as wrong. Detectable: the difference "
    "that 4 of 5 such evaluations would find."
)

LISTED = 400
"""Problems that the table of single problems holds at most, per task."""

VERDICTS = {"right": "right", "wrong": "wrong", "unread": "no answer that can be read", "failed": "grading failed"}


def document(record: EvaluationRecord, facts: EvaluationFacts) -> Document:
    """Content of the page."""
    title = facts.sentences[0] if facts.sentences else _title(facts)
    top = Section("headline", title, [*facts.sentences[1:], *facts.notes], numbers=facts.document())
    parts = [scores(facts), differences(facts), problems(record), completions(record)]
    return Document(tuple(facts.arms), top, tuple(part for part in parts if part is not None))


def _title(facts: EvaluationFacts) -> str:
    k = facts.ks[0]
    said = [
        f"{visible(score.task, 60)}: {score.arm} has pass@{k} {shown(score.passes[k])}" for score in facts.scores[:3]
    ]
    return listed(said) + "."


def scores(facts: EvaluationFacts) -> Section:
    """The table of scores, and a chart of each pass@k."""
    rows = [cells(score) for score in facts.scores]
    made = [_chart(facts, k) for k in facts.ks]
    return Section("scores", "Scores", [HOW_TO], tables=[PageTable("", header(facts.ks), rows)],
                   figures=[one for one in made if one is not None])  # fmt: skip


def _chart(facts: EvaluationFacts, k: int) -> Figure | None:
    """A point with its interval per arm and task; None where there is nothing to draw."""
    kept = [score for score in facts.scores if score.passes[k].low == score.passes[k].low]
    if not kept:
        return None
    data: dict[str, list[Any]] = {
        "task": [visible(score.task, 60) for score in kept],
        "model": [score.arm for score in kept],
        "value": [score.passes[k].value for score in kept],
        "low": [score.passes[k].low for score in kept],
        "high": [score.passes[k].high for score in kept],
    }
    arms = list(facts.arms)
    across = alt.X("value:Q", title=None, axis=alt.Axis(format="~%")).scale(domain=[0, 1])
    along = alt.Y("task:N", sort=[visible(task, 60) for task in facts.tasks], title=None)
    offset = alt.YOffset("model:N", sort=arms)
    shades = alt.Color("model:N", scale=alt.Scale(domain=arms, range=[base.colour(i) for i in range(len(arms))]),
                       legend=None if len(arms) == 1 else alt.Legend())  # fmt: skip
    marks = base.dataset("scores").encode(y=along, yOffset=offset, color=shades)
    layers = [
        marks.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q").scale(domain=[0, 1]), x2="high:Q"),
        marks.mark_point(filled=True, size=60).encode(
            x=across,
            tooltip=["task:N", "model:N", *(alt.Tooltip(f"{n}:Q", format=".1%") for n in ("value", "low", "high"))],
        ),
    ]
    height = max(80, 22 * len(kept) + 20)
    return base.figure(f"pass_at_{k}", f"pass@{k}", layers, {"scores": data}, height=height,
                       caption="A point per model with its 95 % interval.")  # fmt: skip


def differences(facts: EvaluationFacts) -> Section | None:
    """The table of differences; None for one arm."""
    if not facts.differences:
        return None
    text = [
        "Differences on the same problems, in percentage points. p is adjusted by Holm's method over all tasks and "
        "pairs of one pass@k."
    ]
    table = PageTable("", DIFFERENCES, [difference_cells(one) for one in facts.differences])
    return Section("differences", "Differences", text, tables=[table])


def problems(record: EvaluationRecord) -> Section:
    """What each problem came to: right completions of each model."""
    tables = []
    for task in record.plan.tasks:
        found = {model: record.rows.get((model, task), ()) for model in record.plan.models}
        names = {row.index: row for rows in found.values() for row in rows}
        right = {
            model: {row.index: f"{row.right}/{len(row.completions)}" for row in rows} for model, rows in found.items()
        }
        rows = [
            (visible(names[i].id, 60), visible(names[i].prompt, 80), *(right[model].get(i, "") for model in found))
            for i in sorted(names)[:LISTED]
        ]
        left = f"The first {LISTED} of {len(names):,}." if len(names) > LISTED else ""
        head = ("problem", "prompt", *labels(record.plan.models))
        tables.append(PageTable(visible(task, 60), head, rows, left, folded=True))
    return Section("problems", "Problem by problem", ["Right completions of all, by model."], tables=tables)


def completions(record: EvaluationRecord) -> Section | None:
    """The viewer of completions: models instead of runs, tasks instead of steps; None where there are none."""
    names = dict(zip(record.plan.models, labels(record.plan.models), strict=True))
    parts = max(1, len(record.rows))
    shown_runs: list[dict[str, Any]] = []
    for model, name in names.items():
        steps = []
        for task in record.plan.tasks:
            rows = record.rows.get((model, task), ())
            kept = _within(rows, BUDGET // parts)
            if kept:
                steps.append({"step": visible(task, 60), "problems": [_problem(row) for row in kept],
                              "left_out": len(rows) - len(kept)})  # fmt: skip
        if steps:
            shown_runs.append({"run": name, "steps": steps, "notes": []})
    if not shown_runs:
        return None
    data = {"runs": shown_runs, "unseen": UNSEEN, "controls": CONTROLS, "word": "task"}
    text = ["What the models wrote. Arrow keys: left and right change the task, up and down the problem."]
    return Section("rollouts", "Completions", text, widget="rollouts", data=data)


def _within(rows: Sequence[EvaluatedProblem], budget: int) -> list[EvaluatedProblem]:
    """The first problems that fit, one at least."""
    kept: list[EvaluatedProblem] = []
    for row in rows[:PROBLEMS]:
        budget -= len(row.prompt) + sum(min(len(one.text), TEXT) + 60 for one in row.completions)
        if budget < 0 and kept:
            break
        kept.append(row)
    return kept


def _problem(row: EvaluatedProblem) -> dict[str, Any]:
    answer = f" (answer: {visible(row.answer, 100)})" if row.answer else ""
    return {
        "problem": cut(f"{row.id}{answer}", NAME),
        "prompt": cut(row.prompt, PROMPT),
        "rollouts": [_shown(index, one) for index, one in enumerate(row.completions)],
    }


def _shown(index: int, one: Completion) -> dict[str, Any]:
    return {
        "index": index,
        "reward": one.reward,
        "truncated": one.truncated,
        "count": one.tokens,
        **cut(one.text, TEXT),
        "components": {VERDICTS[one.verdict]: one.reward},
    }
