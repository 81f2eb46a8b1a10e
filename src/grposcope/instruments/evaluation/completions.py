"""What the models wrote, for the viewer of the page: models instead of runs, tasks instead of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grposcope.core.answer import Answer
from grposcope.core.text import CONTROLS, UNSEEN, visible
from grposcope.instruments.evaluation.record import Completion, EvaluatedProblem, EvaluationRecord
from grposcope.instruments.evaluation.scores import labels
from grposcope.render.rollout_viewer import BUDGET, NAME, PROBLEMS, PROMPT, TEXT, cut

VERDICTS = {"right": "right", "wrong": "wrong", "unread": "no readable answer", "failed": "grading failed"}


def viewer(record: EvaluationRecord) -> Answer | None:
    """The viewer of completions: models instead of runs, tasks instead of steps; None where there are none."""
    names = dict(zip(record.plan.models, labels(record.plan.models), strict=True))
    parts = max(1, len(record.rows))
    shown_runs: list[dict[str, Any]] = []
    for model, name in names.items():
        steps = []
        for task in record.plan.tasks:
            rows = record.rows.get((model, task), ())
            lengths = _within(rows, BUDGET // parts)
            if lengths:
                steps.append({"step": visible(task, 60), "problems": [_problem(row) for row in lengths],
                              "left_out": len(rows) - len(lengths)})  # fmt: skip
        if steps:
            shown_runs.append({"run": name, "steps": steps, "notes": []})
    if not shown_runs:
        return None
    data = {"runs": shown_runs, "unseen": UNSEEN, "controls": CONTROLS, "word": "task"}
    text = ["Arrow keys: left and right change the task, up and down the problem."]
    return Answer(
        "rollouts", "What did the models write?", sentence=_counted(record), text=text, widget="rollouts", data=data
    )


def _counted(record: EvaluationRecord) -> str:
    written = sum(len(row.completions) for rows in record.rows.values() for row in rows)
    tasks, models = len(record.plan.tasks), len(record.plan.models)
    return f"{written:,} completions of {models} model{'s' * (models > 1)} on {tasks} task{'s' * (tasks > 1)}."


def _within(rows: Sequence[EvaluatedProblem], budget: int) -> list[EvaluatedProblem]:
    """The first problems that fit, one at least."""
    problems: list[EvaluatedProblem] = []
    for row in rows[:PROBLEMS]:
        budget -= len(row.prompt) + sum(min(len(completion.text), TEXT) + 60 for completion in row.completions)
        if budget < 0 and problems:
            break
        problems.append(row)
    return problems


def _problem(row: EvaluatedProblem) -> dict[str, Any]:
    answer = f" (answer: {visible(row.answer, 100)})" if row.answer else ""
    return {
        "problem": cut(f"{row.id}{answer}", NAME),
        "prompt": cut(row.prompt, PROMPT),
        "rollouts": [_shown(index, completion) for index, completion in enumerate(row.completions)],
    }


def _shown(index: int, completion: Completion) -> dict[str, Any]:
    return {
        "index": index,
        "reward": completion.reward,
        "truncated": completion.truncated,
        "count": completion.tokens,
        **cut(completion.text, TEXT),
        "components": {VERDICTS[completion.verdict]: completion.reward},
    }
