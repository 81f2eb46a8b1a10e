"""Which number of console lines counts the steps: only what can be nothing else is taken.

In this order: a number that is called the step; a progress such as 12/9751; an epoch and a progress within it; an
epoch and a step that falls just where the epoch goes on by one; the first number of the line. Each has to count up, but
for a few restarts at which no epoch begins, or down in every line, as where the newest is first. A number that is
called the step, or a progress, but does not count, leaves the question to the user.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.run import Floats
from grposcope.core.text import listed, number, visible
from grposcope.logs.formats.key_values import Named
from grposcope.logs.hints import UndecidedError

STEPS = ("global step", "step", "steps", "optimizer step", "iteration", "iterations", "iter", "it", "update", "updates")
"""Names of the step, the most reliable first."""

HEADS = ("epoch", "episode", "round", "batch", "rollout", "")
"""Names of a first number that counts the rows where nothing is called the step; "" for one without a name."""

FALLS = 0.02
"""Largest share of rows at which a counter may fall, which is where a run was restarted."""

_WORDS = re.compile(r"[A-Za-z]+")
_FILLING = frozenset(("train", "training", "current", "cur", "the", "trainer", "policy"))
_POSITION = re.compile(r"#?\d{1,4}")

Numbers = Sequence[Named]


def is_step(name: str) -> bool:
    """Whether a number of this name is called the step."""
    return _words(name) in STEPS


def named(numbers: Numbers, key: str) -> Named | None:
    """The number of this name, or at the place "2" or "#2" of the line; None if the line has none."""
    for candidate in numbers:
        if candidate.name == key:
            return candidate
    if _POSITION.fullmatch(key):
        place = int(key.removeprefix("#"))
        return numbers[place - 1] if 0 < place <= len(numbers) else None
    return None


@dataclass(frozen=True)
class Counter:
    """Number that counts the steps. keys: its name, or those of an epoch and of a progress within the epoch.

    first: number of the first epoch. length: steps of an epoch, where the number within it has no total.
    """

    keys: tuple[str, ...]
    first: float = 0.0
    length: float = math.nan

    def step(self, numbers: Numbers) -> float:
        """The step of a line; NaN where the line does not have it."""
        parts = [named(numbers, key) for key in self.keys]
        present = [part for part in parts if part is not None]
        if len(present) < len(parts):
            return math.nan
        *outer, inner = present
        return inner.value + sum((part.value - self.first) * (inner.total or self.length) for part in outer)

    @property
    def shown(self) -> str:
        """What is taken as the step, for people."""
        return " and ".join(f"number {key[1:]} of the line" if key.startswith("#") else key for key in self.keys)


def head(numbers: Numbers, counter: Counter | None) -> tuple[str, ...]:
    """Names of the numbers up to the place that counts the steps, which is only so in lines that begin alike."""
    keys = () if counter is None else counter.keys
    places = [int(key.removeprefix("#")) for key in keys if _POSITION.fullmatch(key)]
    return tuple(number.name for number in numbers[: max(places, default=0)])


def decide(rows: Sequence[Numbers]) -> Counter | None:
    """What counts the steps of these lines, None where nothing does; UndecidedError where it is not plain."""
    names = list(dict.fromkeys(number.name for numbers in rows[:1000] for number in numbers))
    columns = {name: _column(rows, name) for name in names}
    whole = {name: values for name, (values, _) in columns.items() if _is_whole(values)}
    progress = {name: totals for name, (_, totals) in columns.items() if name in whole and np.isfinite(totals).all()}
    called = sorted((name for name in whole if _words(name) in STEPS), key=lambda name: STEPS.index(_words(name)))
    moving = [name for name in progress if np.ptp(whole[name]) > 0]
    counter = _of_called(whole, progress, called, moving)
    if counter is not None:
        return counter
    if not called and names and _is_head(names[0], whole):
        return Counter((names[0],))
    if maybe := list(dict.fromkeys([*called, *moving])):
        some = listed([f"{visible(name, 40)} ({_span(whole[name])})" for name in maybe[:6]])
        raise UndecidedError(
            f"cannot tell which number is the step: none counts up on its own, not even {some}", "columns"
        )
    return None


def _of_called(
    whole: dict[str, Floats], progress: dict[str, Floats], called: Sequence[str], moving: Sequence[str]
) -> Counter | None:
    """The first number that is called the step, or else the only progress that moves, that counts; alone or within
    what counts outside of it. None where none does."""
    candidates = [*called, *(moving if len(moving) == 1 else [])]
    for name in candidates:
        if _counts(whole[name], restarts=False):
            return Counter((name,))
    if (nested := _nested(whole, progress)) is not None:
        return nested
    for name in candidates:
        if _counts(whole[name]) and not any(_begins_anew(whole[outer], whole[name]) for outer in whole):
            return Counter((name,))
    counters = (_downwards(whole, name) or _within_epochs(whole, name) for name in called)
    return next((counter for counter in counters if counter is not None), None)


def _downwards(whole: dict[str, Floats], name: str) -> Counter | None:
    """A number that falls from line to line, the newest line being the first; None where it does not."""
    values = whole[name]
    return Counter((name,)) if len(values) > 2 and (np.diff(values) < 0).all() else None


def _within_epochs(whole: dict[str, Floats], name: str) -> Counter | None:
    """An epoch and a number within it, which falls just where the epoch goes on by one; None where there is none.

    A number that rises where the epoch goes on too counts more than the epochs.
    """
    for outer in whole:
        if _words(outer) not in HEADS or not _begins_anew(whole[outer], whole[name]):
            continue
        if ((np.diff(whole[outer]) > 0) & (np.diff(whole[name]) >= 0)).any():
            continue
        length = np.ptp(whole[name]) + np.median(np.abs(np.diff(whole[name])))
        return Counter((outer, name), float(whole[outer].min()), float(length))
    return None


def _is_head(name: str, whole: dict[str, Floats]) -> bool:
    """Whether the first number of the lines is one of HEADS and rises from line to line."""
    return name in whole and _words(name) in HEADS and bool((np.diff(whole[name]) > 0).all())


def _nested(whole: dict[str, Floats], progress: dict[str, Floats]) -> Counter | None:
    """An outer count and a progress within it, which together count up; None if no two do.

    A number that changes while the outer count goes on at every row is no progress, such as the failures of 15.
    """
    names = list(whole)
    for inner, totals in progress.items():
        for outer in names[: names.index(inner)]:
            if np.ptp(totals) > 0 or not (whole[inner] <= totals).all() or _words(outer) not in (*HEADS, *STEPS):
                continue
            if np.ptp(whole[inner]) > 0 and (np.diff(whole[outer]) != 0).all():
                continue
            counter = Counter((outer, inner), float(whole[outer].min()))
            if _counts((whole[outer] - counter.first) * totals + whole[inner]):
                return counter
    return None


def _column(rows: Sequence[Numbers], name: str) -> tuple[Floats, Floats]:
    """Values and totals of a number in the rows that have it; empty unless nearly all have."""
    found = [candidate for numbers in rows for candidate in numbers if candidate.name == name]
    if len(found) < 0.9 * len(rows):
        return np.empty(0), np.empty(0)
    values = np.array([one.value for one in found])
    return values, np.array([math.nan if one.total is None else one.total for one in found])


def _is_whole(values: Floats) -> bool:
    return len(values) > 0 and bool(np.isfinite(values).all()) and bool((values == np.floor(values)).all())


def _counts(values: Floats, restarts: bool = True) -> bool:
    """Whether values rise, but for a few restarts; one row alone counts."""
    changes = np.diff(values)
    falls, rises = int((changes < 0).sum()), int((changes > 0).sum())
    return len(values) == 1 or (falls < rises and falls <= (max(FALLS * len(values), 3) if restarts else 0))


def _begins_anew(outer: Floats, inner: Floats) -> bool:
    """Whether `inner` falls only where `outer` goes on by one: it counts within what `outer` counts."""
    if len(outer) != len(inner):
        return False
    falls = np.diff(inner) < 0
    return bool(falls.any() and (np.diff(outer)[falls] == 1).all() and (np.diff(outer) >= 0).all())


def _span(values: Floats) -> str:
    return f"{number(float(values.min()))} to {number(float(values.max()))}"


def _words(name: str) -> str:
    if name.startswith("#"):
        return ""
    return " ".join(word for word in _WORDS.findall(name.lower().replace("_", " ")) if word not in _FILLING)
