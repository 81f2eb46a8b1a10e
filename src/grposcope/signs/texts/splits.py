"""A paid habit by environment and by turn: where it is, what it is paid there, and since when.

Texts are compared inside groups, as over all texts. A turn has a habit where the habit's name, read of that turn's text
or calls alone, holds; rollouts that have fewer turns are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Bools, Floats
from grposcope.maths.passage import Passage
from grposcope.signs.texts import edits, habits
from grposcope.signs.texts.habits import PaidHabit
from grposcope.signs.texts.sample import TextSample
from grposcope.signs.texts.turn_features import TextTurn, shown

LEAST = 32
"""Texts of an environment, or with so many turns, below which nothing is said of them."""

MOST = 8
"""Environments and turns that are told of: the most frequent ones, and the first ones."""

_OF_CALL = re.compile(r"calls “(.*)”( first| last|)", re.DOTALL)


@dataclass(frozen=True)
class HabitSplit:
    """A habit in one environment, or in one turn. name: of it. texts: rollouts. paid, unpaid: mean reward with and
    without in groups that have both, NaN for none or for a measure. early, late: mean of the habit in the first and
    last tenth of the steps that have such texts, NaN where there are none. since: its onset, None where it did
    not rise."""

    name: str
    texts: int
    paid: float
    unpaid: float
    early: float
    late: float
    since: Passage | None


def by_environment(sample: TextSample, habit: PaidHabit, seed: int = 0) -> tuple[HabitSplit, ...]:
    """The habit in each environment, the one with most texts first; empty where there is one only."""
    names, counts = np.unique(np.array(sample.environments, dtype=object).astype(str), return_counts=True)
    ordered = [str(names[index]) for index in np.argsort(-counts, kind="stable")[:MOST]] if len(names) > 1 else []
    own = np.array(sample.environments, dtype=object)
    return tuple(_split(sample, habit, name or "(none)", own == name, habit.column, seed) for name in ordered
                 if (own == name).sum() >= LEAST)  # fmt: skip


def by_turn(sample: TextSample, habit: PaidHabit, seed: int = 0) -> tuple[HabitSplit, ...]:
    """The habit in each turn; empty where no rollout has two, and for what cannot be read of a turn."""
    has = _of_turn(habit, sample) if sample.turns else None
    if has is None:
        return ()
    counts = np.array([len(own) for own in sample.turns])
    made = []
    for turn in range(min(int(counts.max()), MOST)):
        rows = counts > turn
        if rows.sum() < LEAST or counts.max() < 2:
            break
        column = np.zeros(len(sample))
        column[rows] = [has(sample.turns[row][turn]) for row in np.flatnonzero(rows)]
        made.append(_split(sample, habit, str(turn + 1), rows, column, seed))
    return tuple(made)


def _of_turn(habit: PaidHabit, sample: TextSample) -> Callable[[TextTurn], bool] | None:
    """Whether a turn has a habit, by its name; None for what its name does not say of a turn."""
    if not habit.binary:
        return None
    if habit.feature.startswith("calls “") and "” with " in habit.feature:
        return lambda turn: any(shown(call) == habit.feature for call in turn.calls) == habit.more
    if called := _OF_CALL.fullmatch(habit.feature):
        name, position = called.groups()
        if position:
            return None
        return lambda turn: any(call.name == name for call in turn.calls) == habit.more
    edit = edits.of_habit(habit, sample)
    has = None if edit is None else edit.has
    return None if has is None else lambda turn: has(turn.text)


def _split(sample: TextSample, habit: PaidHabit, name: str, rows: Bools, column: Floats, seed: int) -> HabitSplit:
    places = np.flatnonzero(rows)
    own, values = sample.at(places), column[places]
    paid = unpaid = np.nan
    if habit.binary:
        paid, unpaid, *_ = habits.levels(own.reward, values, own.group)
    first, last = habits.tenths(own)
    early, late = habits.mean(values[first]), habits.mean(values[last])
    rose = len(np.unique(own.step)) >= 4 and abs(late - early) > habits.SPREAD and habit.binary
    since = habits.onset(own, values, np.random.default_rng(seed)) if rose else None
    return HabitSplit(name, len(places), paid, unpaid, early, late, since)
