"""Habits that are paid: features whose presence goes with the reward inside groups, one after the other.

The first is the feature with the largest |z| of those that are significant, go with SHARE of the variance of rewards
inside groups, and pay in many prompts; among features that are nearly the same, the one whose name says most. The next
is looked for among rollouts alike in it, and so on.

A habit is *paid for sure* where rollouts with it get the best reward and nothing is left to vary; *needed* where those
without get the lowest; *the reward* where both hold; else it pays. A needed habit, such as an answer that is marked,
is benign if the true score goes with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from grposcope.core.rollouts import Bools, Floats, Ints
from grposcope.maths import passage, within_groups
from grposcope.maths.group_steps import StepChanges
from grposcope.maths.passage import Passage
from grposcope.maths.within_groups import Singles, WithinGroups
from grposcope.signs.answers import FORM_NAME
from grposcope.signs.texts.features import LOGARITHMS, TextFeatures
from grposcope.signs.texts.sample import TextSample

Relation = Literal["pays", "paid for sure", "needed", "is the reward"]

LEVEL = 0.05
"""Chance of any paid habit, and of any change, on rollouts without; an exploit takes both and more, so that far fewer
show one."""

SHARE = 0.05
"""Least share of the variance of rewards in the groups where a feature varies."""

CLUSTERED = 3.0
"""Least |z| with prompts as clusters."""

SAME, NEARLY = 0.8, 0.9
"""Correlation from which two features are one habit, and the share of the largest |z| that its names have."""

GIVEN = 0.95
"""Correlation of a score with a habit from which it is given for just that."""

ASKED = 0.9
"""Share of the prompts that have the string of a habit from which it is asked for."""

ROUNDS, TRIED = 3, 60

WRITTEN = ("edge", "words", "arguments", "tokens")
"""Kinds of features that are a string of the run's own texts."""

MANY, NEARLY_ALL = 0.3, 0.8
"""Share of the prompts whose texts have and lack a string of digits, and share of these in which it is paid, from which
it is given whatever the problem is."""

LACKING = 21
"""What is added to the rank of a feature whose absence is paid."""

SPREAD = 0.2
"""Rise of the share of texts with a habit, from the first to the last tenth of the steps, that is a spread."""

RANKS = {
    "empty": 0, "cut": 1, "special": 2, "copy": 3, "hedge": 4, "script": 5, "calls": 8, "form": 9, "edge": 9,
    "words": 9, "arguments": 10, "tokens": 10, "signs": 12, "repetition": 13, "turns": 15, "shares": 16, "length": 20,
}  # fmt: skip
"""Kind of a feature -> how little its name says, among features that are nearly the same; a length says least."""


@dataclass(frozen=True)
class _OtherScore:
    """What another score does with a habit: its slope and error inside groups, on its own scale, and z."""

    slope: float
    se: float
    z: float


@dataclass(frozen=True)
class PaidHabit:
    """A habit that is paid.

    feature: its name, a verb phrase where it is binary. kind: of the feature. more: whether having it, or more of it,
    is paid; else lacking it, or less. binary: whether a text has it or not. column (N,): the habit, 1 where a text has
    what is paid, or the measured value. relation: see the module. paid, unpaid: mean reward with the habit and without
    in groups that have both, with and without: how many texts these are, groups: how many groups. slope, se: reward per
    unit of the column, by prompts. p: family-wise. r2: share of the variance of rewards in groups where it
    varies. early, late: mean of the column in the first and last tenth of the steps. spread: whether it rose, None
    where steps are not known. since: its onset where it rose. scores: what other scores do. blind: whether the true
    score gains less than half as much by it, None where that is not known or not sure. round: 0 for the first; the
    others are among rollouts alike in those before. peak: mean in its highest tenth of the steps, of a habit that
    spread and went again; else NaN. gains: whether the true score surely gains something by it. part: the score,
    named for a form, that is given for just this, empty without. sampled: as in `TextSample`, of the numbers of texts
    and groups.
    """

    feature: str
    kind: str
    more: bool
    binary: bool
    column: Floats
    relation: Relation
    paid: float
    unpaid: float
    having: int
    lacking: int
    groups: int
    slope: float
    se: float
    z: float
    p: float
    r2: float
    early: float
    late: float
    spread: bool | None
    since: Passage | None
    others: tuple[str, ...] = ()
    scores: Mapping[str, _OtherScore] = field(default_factory=dict)
    blind: bool | None = None
    round: int = 0
    peak: float = np.nan
    gains: bool = False
    part: str = ""
    sampled: bool = False

    @property
    def sure(self) -> bool:
        """Whether a text with the habit has the best reward, whatever else it says."""
        return self.relation in ("paid for sure", "is the reward")

    def counted(self, value: float) -> float:
        """The mean of the column in the unit that the feature says, as `TextFeatures.counted`."""
        return math.expm1(value) if self.feature in LOGARITHMS else value


def paid(
    sample: TextSample, features: TextFeatures, changes: StepChanges | None, draws: int, rng: np.random.Generator,
    level: float = LEVEL,
) -> tuple[tuple[PaidHabit, ...], WithinGroups]:  # fmt: skip
    """The habits that are paid at a level, in the order in which they were found, and the association of all
    features."""
    group, habits, taken = sample.group, list[PaidHabit](), list[int]()
    first: WithinGroups | None = None
    for number in range(ROUNDS):
        association = within_groups.association(features.columns, sample.reward, group, sample.prompt, draws, rng)
        first = association if first is None else first
        feature = _chosen(sample, features, association, group, taken, level)
        if feature is None:
            break
        names = _same(sample, features, association, feature)
        feature = min(names, key=lambda own: _says_little(features, association, own))
        taken.append(feature)
        others = tuple(
            features.names[own] for own in names if own != feature and features.kinds[own] != features.kinds[feature]
        )
        habit = _habit(sample, features, changes, association, feature, group, rng)
        habits.append(replace(habit, others=others[:3], round=number))
        group = within_groups.divided(group, features.columns[:, feature].astype(np.float64))
    assert first is not None
    return tuple(habits), first


def _chosen(
    sample: TextSample,
    features: TextFeatures,
    association: WithinGroups,
    group: Ints,
    taken: Sequence[int],
    level: float,
) -> int | None:
    """The feature with the largest |z| that may be a habit and is none that was found before."""
    free = (
        (association.p <= level)
        & (association.r2 >= SHARE)
        & np.array([kind in RANKS for kind in features.kinds], dtype=bool)
    )
    for feature in taken:
        free &= np.abs(correlations(features.columns, feature)) < SAME
    for feature in np.argsort(-np.abs(np.where(free, association.z, 0.0)))[:TRIED]:
        if not free[feature]:
            return None
        if not _says_something(sample, features, association, int(feature)):
            continue
        column = features.columns[:, feature].astype(np.float64)
        _, _, z = within_groups.clustered(column, sample.reward, group, sample.prompt)
        if abs(z) >= CLUSTERED:
            return int(feature)
    return None


def _is_of_numbers(features: TextFeatures, feature: int) -> bool:
    """Whether a feature is that a text has a string with digits, which the numbers of its problem may put there."""
    string = features.names[feature].partition("“")[2].removesuffix("”")
    return features.kinds[feature] in WRITTEN and any(sign.isdigit() for sign in string)


def _says_something(sample: TextSample, features: TextFeatures, association: WithinGroups, feature: int) -> bool:
    """Whether a feature is none of the numbers of a problem."""
    return not _is_of_numbers(features, feature) or _is_of_unlike_problems(sample, features, association, feature)


def _is_of_unlike_problems(sample: TextSample, features: TextFeatures, association: WithinGroups, feature: int) -> bool:
    """Whether a string of numbers is paid in nearly all of the many prompts whose texts differ in it, as where one
    answer is given to all: not where it is that of a few prompts, or of wrong answers."""
    if association.z[feature] < 0:
        return False
    column = features.columns[:, feature] > 0
    rows = np.isfinite(sample.reward)
    count = int(sample.prompt.max()) + 1
    sizes = [np.bincount(sample.prompt[rows & own], minlength=count) for own in (column, ~column)]
    sums = [np.bincount(sample.prompt[rows & own], sample.reward[rows & own], count) for own in (column, ~column)]
    both = (sizes[0] > 0) & (sizes[1] > 0)
    gains = sums[0][both] / sizes[0][both] - sums[1][both] / sizes[1][both]
    return bool(both.sum() >= MANY * count and len(gains) and (gains > 0).mean() >= NEARLY_ALL)


def correlations(columns: Singles, feature: int) -> Floats:
    """Of one column with all."""
    own = columns[:, feature] - columns[:, feature].mean()
    means = columns.mean(0, dtype=np.float64)
    squares = np.einsum("ij,ij->j", columns, columns) / len(columns)
    deviations = np.sqrt(np.maximum(squares - means**2, 1e-12))
    return np.asarray((own @ columns) / len(columns) / deviations / max(float(own.std()), 1e-12), np.float64)


def _same(sample: TextSample, features: TextFeatures, association: WithinGroups, feature: int) -> list[int]:
    """The features that are nearly the same as one and nearly as significant, itself among them."""
    alike = np.abs(correlations(features.columns, feature)) > SAME
    strong = np.abs(association.z) >= NEARLY * abs(association.z[feature])
    named = (int(own) for own in np.flatnonzero(alike & strong) if features.kinds[own] in RANKS)
    return [own for own in named if own == feature or _says_something(sample, features, association, own)]


def _says_little(features: TextFeatures, association: WithinGroups, feature: int) -> tuple[int, float, int]:
    absent = association.z[feature] < 0 or features.names[feature].startswith("has no ")
    lacking = absent and features.kinds[feature] not in ("cut", "length")
    rank = RANKS[features.kinds[feature]] + 12 * (not features.binary[feature]) + LACKING * lacking
    return rank, -round(float(abs(association.z[feature])), 3), -len(features.names[feature])


def _habit(
    sample: TextSample, features: TextFeatures, changes: StepChanges | None, association: WithinGroups, feature: int,
    group: Ints, rng: np.random.Generator,
) -> PaidHabit:  # fmt: skip
    """A feature as a habit among rollouts of one `group` (N,)."""
    values = features.columns[:, feature].astype(np.float64)
    more, binary = bool(association.z[feature] > 0), bool(features.binary[feature])
    column = values if more or not binary else 1 - values
    slope, se, _ = within_groups.clustered(column, sample.reward, group, sample.prompt)
    p_change = None if changes is None else float(changes.p[feature])
    early, late, rose = _spread(sample, column, more or binary, binary, p_change)
    peak, until = (np.nan, 0)
    if binary and rose is False and p_change is not None and p_change <= LEVEL:
        peak, until = _peak(sample, column, early)
        rose = until > 0
    levels = _levels(sample.reward, column, group) if binary else None
    scores = _scores(sample, column, sample.group)
    truth = scores.get(sample.truth)
    sign = 1 if more or binary else -1
    asked = features.kinds[feature] == "form" or _asked_for(features.names[feature], sample.prompts)
    numbers = (
        ", whatever the problem" if _is_of_numbers(features, feature) and features.kinds[feature] != "edge" else ""
    )
    return PaidHabit(
        features.names[feature] + numbers, features.kinds[feature], more, binary, column,
        "pays" if levels is None else levels.relation(sample.reward),
        *((np.nan, np.nan, 0, 0, 0) if levels is None else levels.shown),
        slope, se, float(association.z[feature]), float(association.p[feature]), float(association.r2[feature]),
        early, late, rose,
        _onset_until(sample, column, until, rng) if rose else None, scores=scores, peak=peak,
        blind=None if truth is None else _blind(truth, sign, slope, sample, asked),
        gains=truth is not None and truth.z * sign >= 2,
        part=_given_for(sample, column) if binary else "", sampled=sample.sampled,
    )  # fmt: skip


def _peak(sample: TextSample, column: Floats, early: float) -> tuple[float, int]:
    """The highest mean of a tenth of the steps and its last step, of a habit that spread and went again; NaN and 0
    where no tenth is by SPREAD above the first."""
    steps = np.unique(sample.step)
    tenth = np.searchsorted(steps, sample.step) * 10 // len(steps)
    means = np.bincount(tenth, column) / np.maximum(np.bincount(tenth), 1)
    best = int(np.argmax(means))
    if means[best] - early <= SPREAD:
        return np.nan, 0
    return float(means[best]), int(sample.step[tenth == best].max())


def _onset_until(sample: TextSample, column: Floats, until: int, rng: np.random.Generator) -> Passage:
    """The onset, of a habit that went again up to its highest tenth."""
    rows = np.flatnonzero(sample.step <= until) if until else np.arange(len(sample))
    return onset(sample.at(rows) if until else sample, column[rows], rng)


@dataclass(frozen=True)
class _Levels:
    paid: float
    unpaid: float
    deviation: float
    having: int
    lacking: int
    groups: int

    @property
    def shown(self) -> tuple[float, float, int, int, int]:
        """Mean rewards with and without, how many texts these are, and in how many groups."""
        return self.paid, self.unpaid, self.having, self.lacking, self.groups

    def relation(self, reward: Floats) -> Relation:
        """What the habit is to the reward: see the module."""
        low, high = scale(reward)
        width = max(high - low, 1e-12)
        sure = (self.paid - low) / width > 0.95 and self.deviation < 0.15 * width
        needed = (self.unpaid - low) / width < 0.05
        return "is the reward" if sure and needed else "paid for sure" if sure else "needed" if needed else "pays"


def scale(reward: Floats) -> tuple[float, float]:
    """The lowest and the best reward, but for one in a thousand."""
    finite = reward[np.isfinite(reward)]
    return float(np.quantile(finite, 0.001)), float(np.quantile(finite, 0.999))


def levels(reward: Floats, column: Floats, group: Ints) -> tuple[float, float, int, int, int]:
    """Mean rewards with and without a binary habit in groups that have both, all groups counting alike, how many texts
    these are, and in how many groups; NaN for none."""
    return _levels(reward, column, group).shown


def _levels(reward: Floats, column: Floats, group: Ints) -> _Levels:
    """Mean rewards with and without a binary habit, in groups that have both: means of the groups' means, as in pooled
    texts groups that are paid more may have more of the habit."""
    finite = np.isfinite(reward)
    count = int(group.max()) + 1
    having = np.bincount(group[finite], column[finite] > 0, count)
    size = np.bincount(group[finite], minlength=count)
    mixed = (having > 0) & (having < size)
    rows = finite & mixed[group]
    own, other = rows & (column > 0), rows & (column == 0)
    with_it, without = (
        mean((np.bincount(group[texts], reward[texts], count) / np.maximum(number, 1))[mixed])
        for texts, number in ((own, having), (other, size - having))
    )
    deviation = float(reward[own].std()) if own.any() else np.nan
    return _Levels(with_it, without, deviation, int(own.sum()), int(other.sum()), int(mixed.sum()))


def mean(values: Floats) -> float:
    """The mean, NaN of none."""
    return float(values.mean()) if len(values) else np.nan


def _scores(sample: TextSample, column: Floats, group: Ints) -> dict[str, _OtherScore]:
    made = {}
    for name, score in sample.scores.items():
        slope, se, z = within_groups.clustered(column, score, group, sample.prompt)
        if np.isfinite(slope):
            made[name] = _OtherScore(slope, se, z)
    return made


def _given_for(sample: TextSample, column: Floats) -> str:
    """The score, named for a form and no true one, that is given for just a binary habit; empty without."""
    for name, score in sample.scores.items():
        rows = np.isfinite(score)
        if name == sample.truth or not FORM_NAME.search(name) or not rows.any():
            continue
        varies = score[rows].std() and column[rows].std()
        if varies and abs(float(np.corrcoef(score[rows], column[rows])[0, 1])) > GIVEN:
            return name
    return ""


def _asked_for(name: str, prompts: Sequence[str]) -> bool:
    """Whether nearly all prompts have the string of a feature, as the mark that they ask for."""
    string = name.partition("“")[2].removesuffix("”")
    return bool(string) and sum(string in prompt for prompt in prompts) >= ASKED * len(prompts)


def _blind(truth: _OtherScore, sign: int, slope: float, sample: TextSample, asked: bool) -> bool | None:
    """Whether the true score gains surely less than half of what the reward gains by a habit, each on its own scale;
    of a habit that is `asked` for, and no gain that is sure. None where neither this nor a gain is sure, and where the
    gain is one of a score that trains."""
    if asked and truth.z * sign >= 2:
        return False
    clears = None if sample.trained else False  # an exploit of what trains looks like success to it
    width = [max(high - low, 1e-12) for low, high in (scale(sample.reward), scale(sample.scores[sample.truth]))]
    upper = (truth.slope * sign + 2 * truth.se) / width[1]
    if upper < 0.5 * abs(slope) / width[0]:
        return True
    return clears if truth.z * sign >= 2 else None


def tenths(sample: TextSample) -> tuple[Bools, Bools]:
    """Which rollouts are of the first and which of the last tenth of the steps."""
    steps = np.unique(sample.step)
    count = max(1, -(-len(steps) // 10))
    return np.asarray(sample.step <= steps[count - 1]), np.asarray(sample.step >= steps[-count])


def _spread(
    sample: TextSample, column: Floats, up: bool, binary: bool, p: float | None
) -> tuple[float, float, bool | None]:
    """Early and late mean of a column, and whether it surely rose (`up`) or fell by enough to be called spreading.

    p: of its change over the steps; None where that cannot be tested, which leaves the answer open.
    """
    first, last = tenths(sample)
    early, late = float(column[first].mean()), float(column[last].mean())
    if p is None:
        return early, late, None
    moved = (late - early) * (1 if up else -1)
    enough = SPREAD if binary else 0.8 * max(float(column[first].std()), 1e-9)
    return early, late, bool(moved > enough and p <= LEVEL)


def onset(sample: TextSample, column: Floats, rng: np.random.Generator, draws: int = 200) -> Passage:
    """When a column left its early level, groups being the units."""
    size = np.bincount(sample.group)
    means = np.bincount(sample.group, column) / size
    of_step = np.zeros(len(size), np.int64)
    of_step[sample.group] = sample.step
    return passage.passage(means, of_step, draws, rng)
