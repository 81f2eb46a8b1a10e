"""A metric whose key changes in mid-run, as when a trainer is upgraded before a resume: two columns that are one.

One column ends before the other begins, with hardly a row between, and both names mean the same: to the trainer, or
by their words, which are equal but for NEUTRAL ones. Evaluations are left alone. Where only the ends meet, nothing is
put together, since a reward after a penalty is another quantity than one before it; for the reward a note says where it
ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from grposcope.core.run import Floats
from grposcope.core.text import visible
from grposcope.logs.roles import may_be_evaluated

FEWEST = 5
"""Values that either column has at least."""

NEUTRAL = frozenset(("mean", "avg", "average", "approx", "rollout", "train", "training", "metric", "batch"))
"""Words of a key, in the singular, that do not say which quantity it is."""

BETWEEN = 3
"""Rows between both at most, in distances of their values."""


def put_together(
    columns: dict[str, Floats], meaning: Callable[[str], str | None], reward: str | None, clocks: frozenset[str]
) -> Iterator[str]:
    """Fill columns that end with those that go on under another name, which are taken out; a note for each.

    columns: key -> values (N,) in the order of the log. reward: the key that is taken for the reward, if one is.
    """
    ends = {
        key: (int(rows[0]), int(rows[-1]), int(np.median(np.diff(rows))))
        for key, column in columns.items()
        if key not in clocks
        and not may_be_evaluated(key)
        and len(rows := np.flatnonzero(np.isfinite(column))) >= FEWEST
    }
    begun = max((first for first, *_ in ends.values()), default=0)
    for old, (_, last, each) in ends.items():
        if last >= begun:  # nothing begins after it, as in nearly any log
            continue
        after = [
            key for key, (first, _, other) in ends.items()
            if last < first <= last + BETWEEN * max(each, other) and key in columns and old in columns
        ]  # fmt: skip
        same = [key for key in after if _same(old, key, meaning)]
        if len(same) == 1:
            kept = same[0] if same[0] == reward else old
            other = same[0] if kept == old else old
            columns[kept] = np.where(np.isfinite(columns[kept]), columns[kept], columns.pop(other))
            yield f"{visible(old, 60)} is called {visible(same[0], 60)} from mid-run on; both are read as one metric"
        elif old == reward and after and last < len(columns[old]) - BETWEEN * max(each, 1):
            some = ", ".join(visible(key, 60) for key in after[:3])
            yield f"{visible(old, 60)} ends mid-run, where {some} begins; the reward is judged up to there only"


def _same(one: str, other: str, meaning: Callable[[str], str | None]) -> bool:
    known = meaning(one), meaning(other)
    if None not in known:
        return known[0] == known[1]
    short, long = sorted((_words(one), _words(other)), key=len)
    return bool(short) and short <= long and long - short <= NEUTRAL


def _words(key: str) -> set[str]:
    """The words of a key in the singular."""
    return {word.rstrip("s") for word in re.split(r"[^a-z0-9]+", key.lower()) if word}
