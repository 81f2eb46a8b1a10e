"""What an evaluation says: what differs, what too few problems cannot tell, scores, single problems, completions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from grposcope.core.answer import Answer, Table, Word
from grposcope.core.text import listed, number, percent, span, visible
from grposcope.instruments.evaluation import scores
from grposcope.instruments.evaluation.completions import viewer
from grposcope.instruments.evaluation.crossed_means import CrossedMean
from grposcope.instruments.evaluation.figures import of_pass_at_k
from grposcope.instruments.evaluation.record import EvaluationRecord
from grposcope.instruments.evaluation.scores import ArmDifference, ArmScore, EvaluationScores, labels
from grposcope.render.page import Document

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
    figures = [figure for k in evaluated.ks if (figure := of_pass_at_k(evaluated, k)) is not None]
    charts = Answer("scores", "How does each model score?", figures=figures) if figures else None
    parts = (charts, _problems(record), viewer(record))
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
