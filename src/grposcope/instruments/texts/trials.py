"""What a grader pays for a habit, measured: the habit is given to wrong answers and taken from right ones.

Wrong and right are told by the true score, else by the reward. The function grades each text as it was and changed, so
that a difference is of the habit alone. Prompts are the units: the interval is Student's over their mean differences;
where all are the same, Wilson's for the share of prompts of which that is true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grposcope.core.rollouts import Bools, Floats, Ints, Rollout, Text, plain_text
from grposcope.instruments.texts.grading import SECONDS, BatchRewards, TextBatch, graded
from grposcope.maths.confidence import quantile
from grposcope.maths.intervals import wilson
from grposcope.signs.texts import edits, habits, phrases
from grposcope.signs.texts.edits import HabitEdit
from grposcope.signs.texts.habits import PaidHabit
from grposcope.signs.texts.sample import TextSample

TEXTS = 64
"""Most texts that a habit is given to, and most that it is taken from."""

Done = Literal["added", "removed"]


@dataclass(frozen=True)
class GraderTrial:
    """What a grader pays for a habit that is added or removed.

    texts: how many were changed, prompts: of how many prompts. before, after: mean reward of them by the function.
    difference, low, high: after less before with a 95 % interval. problem: why there is none of these; then NaN.
    """

    habit: str
    done: Done
    texts: int = 0
    prompts: int = 0
    before: float = math.nan
    after: float = math.nan
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    problem: str = ""


@dataclass(frozen=True)
class GraderTrials:
    """All trials of a function. by_truth: whether wrong and right are those of the true score. same, graded: how many
    texts got the reward from it that was recorded, of how many. untried: habits that no edit makes. refused: paths that
    it tried to write."""

    spec: str
    trials: tuple[GraderTrial, ...]
    by_truth: bool
    same: int
    graded: int
    untried: tuple[str, ...]
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Changed:
    """Rows (n,) of the sample, and their changed texts."""

    habit: str
    done: Done
    rows: Ints
    texts: tuple[str, ...]


def trials(
    sample: TextSample, habits: Sequence[PaidHabit], rollouts: Sequence[Rollout], spec: str, seconds: float = SECONDS
) -> GraderTrials:
    """What the function pays for each habit. rollouts: those of the sample, with the columns that the function takes.

    UserError where the function cannot be called, or fails on texts as they were recorded.
    """
    right = _right(sample)
    made = {phrases.short(habit): edits.of_habit(habit, sample) for habit in habits}
    changed = [each for name, edit in made.items() if edit is not None for each in _changed(sample, name, edit, right)]
    tried = [each for each in changed if len(each.rows)]
    written = _Written(sample, rollouts)
    batches = [written.batch(each.rows, texts) for each in tried for texts in (written.own(each.rows), each.texts)]
    answers = graded(spec, written.rows, batches, seconds) if batches else []
    pairs = list(zip(answers[::2], answers[1::2], strict=True))
    measured = {id(each): _trial(sample, each, *pair) for each, pair in zip(tried, pairs, strict=True)}
    rewards = [(before.rewards, sample.reward[each.rows]) for each, (before, _) in zip(tried, pairs, strict=True)]
    same = sum(int(np.isclose(own, recorded).sum()) for own, recorded in rewards if len(own))
    none = "no text that it can be done to"
    return GraderTrials(
        spec, tuple(measured.get(id(each), GraderTrial(each.habit, each.done, problem=none)) for each in changed),
        bool(sample.truth), same, sum(len(own) for own, _ in rewards),
        tuple(name for name, edit in made.items() if edit is None), answers[0].refused if answers else (),
    )  # fmt: skip


def _right(sample: TextSample) -> Bools:
    """Which texts are right: above the middle of the scale of the true score, or of the reward without one."""
    score = sample.scores[sample.truth] if sample.truth else sample.reward
    return np.asarray(score > sum(habits.scale(score)) / 2)


def _changed(sample: TextSample, name: str, edit: HabitEdit, right: Bools) -> tuple[_Changed, _Changed]:
    """The habit added to wrong texts without it, and removed from right ones with it."""
    finite = np.isfinite(sample.scores[sample.truth] if sample.truth else sample.reward)
    having = np.array([edit.has is not None and edit.has(text) for text in sample.texts])
    add = _edited(sample, np.flatnonzero(~right & ~having & finite), edit, "added", name)
    remove = _edited(sample, np.flatnonzero(right & finite & (having | (edit.has is None))), edit, "removed", name)
    return add, remove


def _edited(sample: TextSample, rows: Ints, edit: HabitEdit, done: Done, name: str) -> _Changed:
    """At most TEXTS texts, changed: one of each prompt before two, the latest first."""
    change = edit.add if done == "added" else edit.remove
    latest = rows[np.argsort(-sample.step[rows], kind="stable")]
    turn = _turns(sample.prompt[latest])
    kept, texts = [], []
    for row in latest[np.argsort(turn, kind="stable")]:
        text = change(sample.texts[row])
        if text is None or (edit.has is not None and edit.has(text) != (done == "added")):
            continue
        kept.append(int(row))
        texts.append(text)
        if len(kept) == TEXTS:
            break
    return _Changed(name, done, np.array(kept, np.int64), tuple(texts))


def _turns(prompts: Ints) -> Ints:
    """How many rows before each are of its prompt."""
    seen: dict[int, int] = {}
    turns = []
    for prompt in prompts.tolist():
        turns.append(seen.get(prompt, 0))
        seen[prompt] = turns[-1] + 1
    return np.array(turns, np.int64)


class _Written:
    """Texts of a sample in the form in which the rollouts have them, a text or messages. rows: one for each prompt,
    with its columns."""

    def __init__(self, sample: TextSample, rollouts: Sequence[Rollout]):
        self._sample = sample
        own = {plain_text(row.prompt): row for row in rollouts if row.prompt is not None and row.completion is not None}
        self._own = own
        self.rows = [Rollout(prompt=row.prompt, columns=row.columns) for row in own.values()]

    def own(self, rows: Ints) -> tuple[str, ...]:
        """The texts as they were recorded."""
        return tuple(self._sample.texts[row] for row in rows)

    def batch(self, rows: Ints, texts: Sequence[str]) -> TextBatch:
        """Texts for the prompts of these rows."""
        prompts: list[Text] = []
        completions: list[Text] = []
        for row, text in zip(rows, texts, strict=True):
            like = self._own.get(self._sample.prompts[row])
            prompts.append(self._sample.prompts[row] if like is None or like.prompt is None else like.prompt)
            messages = like is not None and isinstance(like.completion, list)
            completions.append([{"role": "assistant", "content": text}] if messages else text)
        return prompts, completions


def _trial(sample: TextSample, changed: _Changed, before: BatchRewards, after: BatchRewards) -> GraderTrial:
    if before.problem or after.problem:
        problem = f"on texts as recorded it {before.problem}" if before.problem else f"it {after.problem}"
        return GraderTrial(changed.habit, changed.done, len(changed.rows), problem=problem)
    first, second = np.array(before.rewards), np.array(after.rewards)
    finite = np.isfinite(first) & np.isfinite(second)
    prompts = np.unique(sample.prompt[changed.rows[finite]], return_inverse=True)[1]
    if not len(prompts):
        return GraderTrial(changed.habit, changed.done, len(changed.rows), problem="it gave no finite reward")
    apart = np.bincount(prompts, (second - first)[finite]) / np.bincount(prompts)
    low, high = _interval(apart, float(max(np.ptp(np.concatenate([first[finite], second[finite]])), 0.0)))
    return GraderTrial(
        changed.habit, changed.done, int(finite.sum()), len(apart), float(first[finite].mean()),
        float(second[finite].mean()), float(apart.mean()), low, high,
    )  # fmt: skip


def _interval(apart: Floats, width: float) -> tuple[float, float]:
    """95 % interval of a mean difference over prompts (n,). width: of the scale of rewards, where all are the same."""
    mean, count = float(apart.mean()), len(apart)
    if np.ptp(apart) > 1e-9:
        reach = quantile(count) * float(apart.std(ddof=1)) / math.sqrt(count)
        return mean - reach, mean + reach
    others = (1 - wilson(1.0, count)[0]) * (width if width > 0 else 1.0)
    if abs(mean) < 1e-9:
        return -others, others
    return (mean - others, mean) if mean > 0 else (mean, mean + others)
