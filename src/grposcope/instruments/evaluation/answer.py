"""What an evaluation says: what differs, what too few problems cannot tell, scores, single problems, completions.

What the models wrote, for the viewer of the page: models instead of runs, tasks instead of steps.

The chart of an evaluation: pass@k with its interval, by task and model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from grposcope.core.answer import Answer, Figure, Table, Word
from grposcope.core.text import CONTROLS, UNSEEN, listed, number, percent, span, visible
from grposcope.instruments.evaluation import scores
from grposcope.instruments.evaluation.crossed_means import CrossedMean
from grposcope.instruments.evaluation.record import Completion, EvaluatedProblem, EvaluationRecord
from grposcope.instruments.evaluation.scores import ArmDifference, ArmScore, EvaluationScores, labels
from grposcope.render import charts as base
from grposcope.render.page import Document
from grposcope.render.rollout_viewer import BUDGET, NAME, PROBLEMS, PROMPT, TEXT, cut

QUESTION = "Which model is better, and by how much?"

LEVEL = 0.05
"""Adjusted p-value below which two arms are said to differ."""

LITTLE = 0.1
"""A set of problems on which only larger differences than this would be found can tell little."""

LISTED = 400
"""Problems that the table of single problems holds at most, per task."""

OF_SCORES = (
    "The 95% intervals are for other problems of this kind and, for an arm of several trainings, for other seeds. "
    "Unread: completions without an answer that the grader can read; they count as wrong."
)

OF_DIFFERENCES = (
    "On the same problems, in percentage points. p is adjusted by Holm's method over all tasks and pairs of one "
    "pass@k. Detectable: the difference that 4 of 5 such evaluations would find."
)


def document(record: EvaluationRecord) -> Document:
    """Content of the page: the answer on top; a chart of each pass@k, single problems and completions below."""
    evaluated = scores.of_record(record)
    figures = [figure for k in evaluated.ks if (figure := _pass_at_k_chart(evaluated, k)) is not None]
    charts = Answer("scores", "How does each model score?", figures=figures) if figures else None
    parts = (charts, _problems(record), _viewer(record))
    return Document(
        tuple(evaluated.arms), _answer(record), tuple(paragraph for paragraph in parts if paragraph is not None)
    )


def _answer(record: EvaluationRecord) -> Answer:
    """What differs beyond noise, else what each model scored; what cannot be told; the tables; everything as JSON."""
    evaluated = scores.of_record(record)
    differing, small, notes = _apart(evaluated), _too_small(evaluated), _notes(record, evaluated.scores)
    first, *others = differing or [_scored(evaluated)]
    word: Word = "cannot tell" if small and not any(map(_differs, evaluated.differences)) else "told"
    tables = [
        Table("Scores", _score_header(evaluated.ks), [_score_cells(score) for score in evaluated.scores], OF_SCORES)
    ]
    if evaluated.differences:
        rows = [_difference_cells(difference) for difference in evaluated.differences]
        tables.append(Table("Differences", DIFFERENCES, rows, OF_DIFFERENCES))
    programs = {
        "arms": {name: list(models) for name, models in evaluated.arms.items()},
        "samples": record.plan.samples,
        "missing": record.missing,
        "scores": [_score_document(score) for score in evaluated.scores],
        "differences": [
            {**{name: value for name, value in vars(difference).items() if name != "mean"}, **vars(difference.mean)}
            for difference in evaluated.differences
        ],
        "sentences": [*differing, *small],
        "notes": notes,
    }
    return Answer(
        "headline", QUESTION, word, first, text=[*others, *notes], tables=tables, missing=small, document=programs
    )


def _problems(record: EvaluationRecord) -> Answer:
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
        note = f"The first {LISTED} of {len(names):,}." if len(names) > LISTED else ""
        head = ("problem", "prompt", *labels(record.plan.models))
        tables.append(Table(visible(task, 60), head, rows, note, folded=True))
    return Answer(
        "problems", "Which problems are solved?", text=["Right completions out of all, by model."], tables=tables
    )


def _differs(difference: ArmDifference) -> bool:
    return difference.adjusted < LEVEL


def _scored(evaluated: EvaluationScores) -> str:
    """The scores of the first arms, where there is nothing to compare."""
    k = evaluated.ks[0]
    said = [
        f"{visible(score.task, 60)}: {score.arm} has pass@{k} {_shown(score.passes[k])}"
        for score in evaluated.scores[:3]
    ]
    return listed(said) + "."


def _apart(evaluated: EvaluationScores) -> list[str]:
    """What differs, a sentence each, or that nothing does; nothing where nothing is compared."""
    k = evaluated.ks[0]
    here = [
        difference for difference in evaluated.differences if difference.k == k and not math.isnan(difference.adjusted)
    ]
    said = []
    for difference in filter(_differs, here):
        better, worse = (
            (difference.second, difference.first)
            if difference.mean.value > 0
            else (difference.first, difference.second)
        )
        low, high = sorted((abs(difference.mean.low), abs(difference.mean.high)))
        said.append(
            f"{difference.task}: {better} is better than {worse} by {_points(abs(difference.mean.value))} points "
            f"of pass@{k} (95% interval {_points(low)} to {_points(high)}, adjusted p = {difference.adjusted:.2g})."
        )
    if here and not said:
        least = number(min(one.adjusted for one in here))
        said.append(
            f"No two models differ in pass@{k} beyond noise (smallest adjusted p = {least}, pairs compared: "
            f"{len(here)})."
        )
    return said


def _too_small(evaluated: EvaluationScores) -> list[str]:
    """A sentence for each task whose problems can tell models apart only where these differ a lot."""
    scores, differences, k = evaluated.scores, evaluated.differences, evaluated.ks[0]
    said = []
    for task in dict.fromkeys(score.task for score in scores):
        seen = [
            difference.mean.detectable for difference in differences if difference.task == task and difference.k == k
        ]
        guessed = [score.passes[k].detectable for score in scores if score.task == task]
        least = max((value for value in (seen or guessed) if math.isfinite(value)), default=math.nan)
        problems = min(score.problems for score in scores if score.task == task)
        if problems < 2:
            said.append(f"{task}: {problems} problem{('' if problems == 1 else 's')} cannot tell models apart.")
        elif least > LITTLE:
            about = "" if seen else ", if the models' right answers were unrelated"
            seeds = [
                difference.mean
                for difference in differences
                if difference.task == task and difference.k == k and difference.mean.trainings > 1
            ]
            few = f"{problems} problems"
            if any(mean.se_trainings > mean.se_problems for mean in seeds):
                few += f" and {min(mean.trainings for mean in seeds)} trainings, whose seeds cause most of the noise"
            said.append(
                f"{task}: with {few}, a difference of less than {_points(least)} points of pass@{k} "
                f"would be found in fewer than 4 of 5 such evaluations{about}."
            )
    return said


def _notes(record: EvaluationRecord, scores: Sequence[ArmScore]) -> list[str]:
    """What was left out, could not be read, or is not known."""
    said = []
    if record.missing:
        said.append(f"{record.missing:,} problems are not evaluated yet; run the same command again to continue.")
    for name, task in record.tasks.items():
        if task.left_out:
            reasons = listed([f"{count} {reason}" for reason, count in task.left_out.items()])
            said.append(f"{name}: rows of the file that cannot be graded are left out: {reasons}.")
        if record.plan.split == "heldout" and record.plan.limit is None and name.startswith("jsonl:"):
            said.append(f"{name}: the {task.of} problems held out by a hash; the split all takes the whole file.")
    for score in scores:
        if score.failed:
            said.append(f"{score.task}, {score.arm}: grading failed on {percent(score.failed, 1)} of the completions, "
                        "which count as wrong; their rows say why.")  # fmt: skip
        if score.completions and not score.asked:
            said.append(f"{score.task}: its reward function does not say which answers it could not read.")
    said += [
        f"{score.task}, {score.arm}: {percent(score.truncated.value)} of the completions were cut at the token "
        "limit; a larger limit may raise the score."
        for score in scores
        if score.truncated.value > 0.2
    ]
    return list(dict.fromkeys(said))


def _points(value: float) -> str:
    """A share as percentage points."""
    return number(float(f"{100 * value:.3g}")) if math.isfinite(value) else "unknown"


def _score_header(ks: Sequence[int]) -> tuple[str, ...]:
    """Titles of the columns of a row of scores."""
    return ("task", "model", "problems", *(f"pass@{k}" for k in ks), "cut off", "unread", "tokens")


def _score_cells(score: ArmScore) -> tuple[str, ...]:
    """A row of the table of scores as text."""
    unread = percent(score.unread.value, 1) if score.asked else "not told"
    return (
        visible(score.task, 60),
        score.arm,
        f"{score.problems:,}",
        *(_shown(mean) for mean in score.passes.values()),
        percent(score.truncated.value, 1),
        unread,
        number(score.length),
    )


def _shown(mean: CrossedMean) -> str:
    """A score with its 95 % interval, in per cent."""
    if not math.isfinite(mean.value):
        return "none yet"
    interval = f" ({span(mean.low, mean.high, lambda x: percent(x, 1))})" if math.isfinite(mean.low) else ""
    return f"{percent(mean.value, 1)}{interval}"


DIFFERENCES = ("task", "models", "pass@k", "difference in points (95%)", "adjusted p", "detectable")
"""Titles of the columns of a row of differences."""


def _difference_cells(difference: ArmDifference) -> tuple[str, ...]:
    """A row of the table of differences as text."""
    mean = difference.mean
    interval = f" ({span(100 * mean.low, 100 * mean.high, _signed)})" if math.isfinite(mean.low) else ""
    return (
        visible(difference.task, 60),
        f"{difference.second} − {difference.first}",
        f"pass@{difference.k}",
        f"{_signed(100 * mean.value)}{interval}" if math.isfinite(mean.value) else "none yet",
        "" if math.isnan(difference.adjusted) else f"{difference.adjusted:.2g}",
        _points(mean.detectable),
    )


def _signed(value: float) -> str:
    return f"{value:+.1f}"


def _score_document(score: ArmScore) -> dict[str, Any]:
    passes = {f"pass@{k}": {**vars(mean), "se_samples": score.se_samples[k]} for k, mean in score.passes.items()}
    plain = ("arm", "task", "problems", "completions", "failed", "reward", "length")
    unread = vars(score.unread) if score.asked else None
    return {**{name: getattr(score, name) for name in plain}, **passes, "truncated": vars(score.truncated),
            "unread": unread}  # fmt: skip


VERDICTS = {"right": "right", "wrong": "wrong", "unread": "no readable answer", "failed": "grading failed"}


def _viewer(record: EvaluationRecord) -> Answer | None:
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
        "rollouts": [_completion_shown(index, completion) for index, completion in enumerate(row.completions)],
    }


def _completion_shown(index: int, completion: Completion) -> dict[str, Any]:
    return {
        "index": index,
        "reward": completion.reward,
        "truncated": completion.truncated,
        "count": completion.tokens,
        **cut(completion.text, TEXT),
        "components": {VERDICTS[completion.verdict]: completion.reward},
    }


def _pass_at_k_chart(evaluated: EvaluationScores, k: int) -> Figure | None:
    """A point with its interval per arm and task; None where there is nothing to draw."""
    same = [score for score in evaluated.scores if score.passes[k].low == score.passes[k].low]
    if not same:
        return None
    data: dict[str, list[Any]] = {
        "task": [visible(score.task, 60) for score in same],
        "model": [score.arm for score in same],
        "value": [score.passes[k].value for score in same],
        "low": [score.passes[k].low for score in same],
        "high": [score.passes[k].high for score in same],
    }
    arms, tasks = list(evaluated.arms), dict.fromkeys(score.task for score in evaluated.scores)
    across = alt.X("value:Q", title=None, axis=alt.Axis(format="~%")).scale(domain=[0, 1])
    along = alt.Y("task:N", sort=[visible(task, 60) for task in tasks], title=None)
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
    height = max(80, 22 * len(same) + 20)
    return base.figure(f"pass_at_{k}", f"pass@{k}", layers, {"scores": data}, height=height,
                       caption="A point per model with its 95% interval.")  # fmt: skip
