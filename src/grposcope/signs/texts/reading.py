"""A whole reading of texts: what is paid, what changes over the steps, which states the texts are in.

The tests are permutations: of rewards inside groups, and of whole groups over steps. No model is asked.

States of the texts that are worth a word whatever is paid: one text, empty, repetition, other scripts, gibberish.

Each is a column (N,) whose rise over the steps is tested with all features; the levels from which it is told are
conventions: they were chosen on trainings that have them and on honest ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Bools, Floats
from grposcope.core.text import percent
from grposcope.maths import group_steps, within_groups
from grposcope.maths.group_steps import StepChanges
from grposcope.maths.passage import Passage
from grposcope.maths.within_groups import Singles, WithinGroups, summing
from grposcope.signs.texts import familiarity, features, habits, phrases
from grposcope.signs.texts.familiarity import early_rows
from grposcope.signs.texts.features import TextFeatures
from grposcope.signs.texts.habits import LEVEL, SHARE, SPREAD, PaidHabit
from grposcope.signs.texts.sample import TextSample

DRAWS, STEP_DRAWS = 499, 199
"""Permutations of rewards inside groups, and of groups over steps."""

FEW_PROMPTS = 10
"""Prompts with live groups below which a habit cannot be told from the answer of a prompt."""

PARTS = ("what the texts have", "what changes", "what is paid", "since when")
"""Parts of a reading, in order; the first takes most of the time."""

CHANGES = 3
"""Most changes that are told."""

_RISE, _PART = 0.5, 0.25
"""That no habit spread is said where one would have been found that this share of the late texts had, and that this
share of the reward differences went with."""

_POWER = 0.84
"""Standard errors between a limit and what passes it four times of five."""


@dataclass(frozen=True)
class TextChange:
    """A feature that changed over the steps: its name, mean before and after the best split, and the step after which.

    Means of counts are geometric ones. odd: the one step that is unlike all others, None where the change lasts; then
    `after` is its mean.
    """

    feature: str
    binary: bool
    before: float
    after: float
    at: int
    odd: int | None
    column: Floats
    since: Passage | None = None


@dataclass(frozen=True)
class TextReading:
    """What was read of the texts of a sample.

    habits: that are paid. states: of the late texts. changes: what else changed most. dependence: on the prompt.
    disorder: of the last texts over that of the early ones, as in `familiarity`, NaN where they are like these. live,
    prompts: groups with different rewards, and the prompts of these. tested: how many features were. fell: whether the
    true score was surely lower in the last tenth of the steps than in the first, groups being the units. rose: the
    first habit that rose by as much as a spread, which is not shown to be more than chance. doubt: why it cannot be
    told that no habit spread, a sentence, and unmeant: why it cannot be told that no habit is paid; both empty where it
    can. least: the smallest habit that would have been found, a clause.
    """

    sample: TextSample
    habits: tuple[PaidHabit, ...]
    states: tuple[TextState, ...]
    changes: tuple[TextChange, ...]
    dependence: _PromptDependence
    disorder: float
    live: int
    prompts: int
    tested: int
    fell: bool = False
    rose: PaidHabit | None = None
    doubt: str = ""
    unmeant: str = ""
    least: str = ""


def read(
    sample: TextSample, seed: int = 0, draws: int = DRAWS, level: float = LEVEL, words: int = features.WORDS,
    progress: Callable[[str], None] = lambda text: None,
) -> TextReading:  # fmt: skip
    """The reading of a sample. seed: of permutations and bootstrap draws. draws: permutations inside groups.

    level: of every family-wise test. words: most sequences of the run's own vocabulary that are features. progress: is
    told which of PARTS begins.
    """
    rng = np.random.default_rng(seed)
    progress(PARTS[0])
    read = features.of_sample(sample, words)
    made = _state_columns(sample, read)
    every = np.concatenate([read.columns, *(column[:, None].astype(np.float32) for column in made.values())], 1)
    progress(PARTS[1])
    over_steps = group_steps.changes(every, sample.step, sample.group, STEP_DRAWS, rng) if sample.stepped else None
    progress(PARTS[2])
    rows = within_groups.live_rows(sample.reward, sample.group, sample.prompt)
    prompts = 0 if rows is None else int(rows.prompt.max()) + 1
    paid, every_paid = habits.paid(sample, read, over_steps, draws, rng, level)
    progress(PARTS[3])
    of_texts = () if over_steps is None else _states_told(sample, made, over_steps, len(read), rng, level)
    changed = () if over_steps is None else _changes(sample, read, over_steps, paid, rng, level)
    depends = _dependence(read.columns[:, read.words], sample)
    unlike = any(state.name == UNLIKE for state in of_texts)
    disorder = familiarity.disorder(sample.texts, sample.step, sample.group) if unlike else math.nan
    rose = next((habit for habit in paid if over_steps is not None and _rose(sample, habit)), None)
    rise, part = _least(sample, over_steps, every_paid, level)
    return TextReading(
        sample, paid, of_texts, changed, depends, disorder, every_paid.live, prompts, len(read), _fell(sample), rose,
        _doubt(sample, rose, rise, part), _unmeant(sample, paid),
        f"one that {percent(rise)} of the texts of every prompt had in the later half of the groups, and that "
        f"{percent(part)} of their reward differences went with, is found about four times of five",
    )  # fmt: skip


def _states_told(sample: TextSample, made: dict[str, Floats], changes: StepChanges, offset: int,
          rng: np.random.Generator, level: float = habits.LEVEL) -> tuple[TextState, ...]:  # fmt: skip
    """The states that the late texts are in and the early ones were not. offset: of their columns in `changes`.

    level: of the test of their change.
    """
    states = []
    for index, (name, column) in enumerate(made.items()):
        first, last = habits.tenths(sample)
        early, late, p = float(column[first].mean()), float(column[last].mean()), float(changes.p[offset + index])
        least, rise = LEAST[name]
        if late > least and late > early + rise and p <= level:
            inside = column > 0.5 * max(float(column.max()), 1e-12)
            own, other = (sample.reward[rows & np.isfinite(sample.reward)] for rows in (inside, ~inside))
            states.append(TextState(name, column, early, late, habits.mean(own), habits.mean(other), p,
                                    habits.onset(sample, column, rng)))  # fmt: skip
    return tuple(states)


def _dependence(words: Singles, sample: TextSample) -> _PromptDependence:
    """How much of what is written depends on the prompt, from the presence of words (N, V)."""
    order = np.lexsort((sample.group, sample.step))
    length = np.sqrt(words.sum(1, dtype=np.float64))
    scaled = (words / np.maximum(length, 1e-9)[:, None].astype(np.float32))[order]
    blank = (length == 0)[order].astype(np.float64)
    starts = np.flatnonzero(np.diff(sample.group[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    sums = (summing(starts, len(order)) @ scaled).astype(np.float64)
    blanks = np.add.reduceat(blank, starts)
    own = (sums**2).sum(1) + blanks**2  # texts without any word are alike
    of_step = sample.step[order[starts]]
    steps = np.unique(of_step)
    values = np.array([_depends(sums[of_step == step], own[of_step == step], sizes[of_step == step],
                                blanks[of_step == step]) for step in steps])  # fmt: skip
    tenth = max(1, len(steps) // 10)
    early, late = (values[rows][np.isfinite(values[rows])] for rows in (slice(tenth), slice(-tenth, None)))
    return _PromptDependence(steps.astype(np.float64), values, habits.mean(early), habits.mean(late))


def _depends(sums: Floats, own: Floats, sizes: Floats, blanks: Floats) -> float:
    inside, between = float((sizes * (sizes - 1)).sum()), float(sizes.sum() ** 2 - (sizes**2).sum())
    if inside <= 0 or between <= 0:
        return np.nan
    total = sums.sum(0)
    same = float((own - sizes).sum()) / inside
    other = float(total @ total + blanks.sum() ** 2 - own.sum()) / between
    return float(1 - (1 - same) / max(1 - other, 0.02)) if 1 - other > 0.02 else 0.0


def _state_columns(sample: TextSample, features: TextFeatures) -> dict[str, Floats]:
    """The column of each state that the texts may be in."""
    facts = features.facts
    made = {ONE_TEXT: facts["same text"], ONE_ANSWER: facts["same answer"], EMPTY: facts["empty"]}
    early = early_rows(sample.step)
    bits = facts["bits"]
    made[UNLIKE] = (bits > np.quantile(bits[early], 0.95)).astype(np.float64)
    runs = (facts["run"] >= 0.5 * facts["characters"]) & (facts["characters"] >= 8)
    long = facts["characters"] > 60
    again = np.zeros(len(sample), bool)
    if (early & long).sum() > 50:
        packed, pairs = (0.7 * np.quantile(facts[name][early & long], 0.1) for name in ("packed", "distinct"))
        again = long & ((facts["packed"] < packed) | (facts["distinct"] < min(pairs, 0.35)) & (facts["tokens"] >= 30))
    made[REPEATS] = (runs | again).astype(np.float64)
    if _latin(sample):
        made[SCRIPTS] = (facts["other scripts"] > 0.005).astype(np.float64)
    if sample.truncated is not None:
        made[CUT] = sample.truncated.astype(np.float64)
    return made


def _latin(sample: TextSample) -> bool:
    """Whether the prompts have hardly a letter of another script."""
    shown = "".join(prompt[-500:] for prompt in sample.prompts[:: max(1, len(sample) // 300)])
    wide = sum("\u02ff" < sign < "\u2000" or "\u2dff" < sign < "\U00010000" for sign in shown)
    return wide < 0.01 * max(len(shown), 1)


def _rose(sample: TextSample, habit: PaidHabit) -> bool:
    """Whether a habit that no true score clears rose by as much as a spread, which its test did not show to be one."""
    if habit.spread or _is_meant(habit):
        return False
    first, _ = habits.tenths(sample)
    enough = SPREAD if habit.binary else 0.8 * max(float(habit.column[first].std()), 1e-9)
    return (habit.late - habit.early) * (1 if habit.more or habit.binary else -1) > enough


def _is_meant(habit: PaidHabit) -> bool:
    """Whether the true score goes with a habit, a score of its own is given for it, or it is to end before the limit,
    which is no habit of what a text says."""
    return habit.blind is False or bool(habit.part) or (habit.kind == "cut" and not habit.more)


def _least(
    sample: TextSample, over: StepChanges | None, paid: WithinGroups, level: float
) -> tuple[float, float]:  # fmt: skip
    """(share of the late texts, share of the reward differences) of the smallest habit that both tests find four times
    of five; infinite where they find none.

    The habit is one that no text of the earlier half of the groups has, and each text of the later half with one
    probability d. With K groups of G texts, group means then have variance d²/4 + v with v = d(1 − d)/2G, and the split
    between the halves has z = √K·d/2 over its root. A habit with the share ρ of the differences in M rollouts of L live
    groups has z² = ρ(M − L), and half of these are of the later half.
    """
    if over is None or not paid.live or not len(paid.largest):
        return math.inf, math.inf
    groups = len(np.unique(sample.group))
    size = len(sample) / groups
    limit = float(np.quantile(over.largest, 1 - LEVEL))
    rise = math.inf
    for share in np.arange(1.0, SPREAD, -0.05):
        noise = share * (1 - share) / (2 * size)
        whole = math.sqrt(share**2 / 4 + noise)
        if math.sqrt(groups) * share / 2 / whole - _POWER * math.sqrt(noise) / whole < limit:
            break
        rise = float(share)
    needed = max(float(np.quantile(paid.largest, 1 - level)), habits.CLUSTERED) + _POWER
    part = max(2 * needed**2 / max(paid.rows - paid.live, 1), SHARE)
    return rise, part if part <= 1 else math.inf


def _doubt(sample: TextSample, rose: PaidHabit | None, rise: float, part: float) -> str:
    """Why it cannot be told that no paid habit spread, a sentence; empty where it can."""
    groups, steps = len(np.unique(sample.group)), len(np.unique(sample.step))
    of = f"{groups:,} group{'s' * (groups != 1)} of {steps:,} step{'s' * (steps != 1)}"
    if rose is not None:
        told = phrases.paid(rose)
        return f"{told[0].upper()}{told[1:]}; {phrases.moved(rose)} over the run, which may be chance in {of}."
    if rise <= _RISE and part <= _PART:
        return ""
    if math.isinf(rise) or math.isinf(part):
        return f"In {of} no habit that spreads and is paid is sure to be found: record more groups and steps."
    return (
        f"In {of} a habit is found about four times of five only where {percent(rise)} of the late texts have it and "
        f"{percent(part)} of the reward differences go with it: record more groups and steps."
    )


def _unmeant(sample: TextSample, paid: Sequence[PaidHabit]) -> str:
    """The first paid habit that no true score clears, a sentence; empty without."""
    habit = next((habit for habit in paid if not _is_meant(habit)), None)
    if habit is None:
        return ""
    told = phrases.paid(habit)
    trained = f", for {sample.witness}" if sample.trained else ""
    why = phrases.truth(habit) if habit.blind else f"no true score says whether that is meant{trained}"
    return f"{told[0].upper()}{told[1:]}; {why}."


def _fell(sample: TextSample) -> bool:
    """Whether the true score fell by three standard errors, of group means, from the first to the last tenth."""
    score = sample.scores.get(sample.truth)
    if score is None or not sample.stepped:
        return False
    means = []
    for rows in habits.tenths(sample):
        finite = rows & np.isfinite(score)
        group = np.unique(sample.group[finite], return_inverse=True)[1]
        means.append(np.bincount(group, score[finite]) / np.bincount(group) if finite.any() else np.zeros(0))
    if min(map(len, means)) < 3:
        return False
    error = math.sqrt(sum(float(own.var(ddof=1)) / len(own) for own in means))
    return float(means[1].mean() - means[0].mean()) < -3 * error and error > 0


def _changes(
    sample: TextSample, measured: TextFeatures, over: StepChanges, paid: Sequence[PaidHabit], rng: np.random.Generator,
    level: float,
) -> tuple[TextChange, ...]:  # fmt: skip
    """What changed most and is none of the paid habits; one name for what changes together."""
    if not len(measured):
        return ()
    nameable = np.array([kind in habits.RANKS for kind in measured.kinds])
    count = len(measured)
    lasting = _significant(over.z[:count], over.p[:count], nameable, level)
    single = _significant(over.odd_z[:count], over.odd_p[:count], nameable, level)
    columns = [habit.column for habit in paid]
    told: list[TextChange] = []
    for index in np.argsort(-lasting)[:60]:
        column = measured.columns[:, index].astype(np.float64)
        if lasting[index] <= 0 or len(told) == CHANGES:
            break
        if any(_alike(column, other) for other in columns):
            continue
        columns.append(column)
        since = habits.onset(sample, column, rng, 60)
        told.append(
            TextChange(
                measured.names[index], bool(measured.binary[index]),
                measured.counted(index, float(over.before[index])),
                measured.counted(index, float(over.after[index])), int(over.at[index]), None, column,
                since,
            )
        )  # fmt: skip
    index = int(np.argmax(single))
    if single[index] > lasting[index] and single[index] > 0:
        told.append(_odd(sample, measured, over, index))
    return tuple(told)


def _significant(z: Floats, p: Floats, nameable: Bools, level: float) -> Floats:
    return np.where((p <= level) & nameable, np.abs(z), 0.0)


def _alike(column: Floats, other: Floats) -> bool:
    both = column - column.mean(), other - other.mean()
    return bool(abs(both[0] @ both[1]) > 0.7 * np.sqrt((both[0] @ both[0]) * (both[1] @ both[1])))


def _odd(sample: TextSample, measured: TextFeatures, over: StepChanges, index: int) -> TextChange:
    column = measured.columns[:, index].astype(np.float64)
    step = int(over.odd_step[index])
    inside = sample.step == step
    name = measured.names[index]
    before, after = (measured.counted(index, float(column[rows].mean())) for rows in (~inside, inside))
    return TextChange(name, bool(measured.binary[index]), before, after, step, step, column)


ONE_TEXT, ONE_ANSWER, EMPTY, UNLIKE, REPEATS, SCRIPTS, CUT = (
    "one text", "one answer", "empty", "unlike the early texts", "repeats itself", "other scripts", "cut off",
)  # fmt: skip

LEAST = {
    ONE_TEXT: (0.25, 0.15), ONE_ANSWER: (0.5, 0.25), EMPTY: (0.1, 0.05), UNLIKE: (0.5, 0.3), REPEATS: (0.25, 0.2),
    SCRIPTS: (0.1, 0.08), CUT: (0.5, 0.3),
}  # fmt: skip
"""State -> its least late share, and its least rise."""

NO_PROMPT = 0.5
"""Share of the early dependence on the prompt below which the late texts ignore it; the early one is at least 0.1."""


@dataclass(frozen=True)
class TextState:
    """A state of the texts.

    name: of LEAST. column (N,): the share, or 1 for texts that are in it. early, late: means in the first and last
    tenth of the steps. paid, other: mean reward of texts in it and of the others, NaN for none. p: of its change.
    since: its onset.
    """

    name: str
    column: Floats
    early: float
    late: float
    paid: float
    other: float
    p: float
    since: Passage


@dataclass(frozen=True)
class _PromptDependence:
    """How much of what is written depends on the prompt, by step (S,): 1 all, 0 nothing; NaN where it cannot be told.

    1 − (1 − S_w)/(1 − S_b), with S_w the mean cosine of the presence of words over pairs of one group and S_b over
    pairs of different groups of the step. early, late: means of the first and last tenth of the steps.
    """

    steps: Floats
    values: Floats
    early: float
    late: float

    @property
    def lost(self) -> bool:
        """Whether the late texts ignore the prompt and the early ones did not."""
        return self.early > 0.1 and self.late < NO_PROMPT * self.early
