"""Completions that are counted as cut although they ended: cut ones would all be as long as the longest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import number, percent
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import LATE
from grposcope.signs.quantities import SHORT, Quantities

LEAST_CUT = 0.2
"""Share of completions counted as cut below which nothing is said."""

SLACK = 0.8
"""Mean length over (share counted as cut × longest), in nearly all rows, that no cut completions can have."""

ROWS = 0.9
"""Share of rows that have to show it."""

FOLLOWS = ("length", "masked truncation")
"""Faults that are the same count, read as it is named."""


@dataclass(frozen=True)
class Ended:
    """Late means of rows: the share counted as cut, the mean length and the longest, in tokens; how many rows show it,
    of how many."""

    cut: float
    mean: float
    longest: float
    shown: int
    rows: int


def ended(quantities: Quantities) -> Ended | None:
    """What shows that completions counted as cut ended before the limit; None where nothing does.

    Those that are cut have the length of the limit, which no other exceeds, so that the mean is at least their share ×
    the longest, in a batch and in a mean of batches under one limit.
    """
    cut, length, longest = (quantities.get(name, SHORT) for name in ("truncated", "length", "length_max"))
    if cut is None or length is None or longest is None or cut.values.max() > 1:
        return None
    steps = np.intersect1d(np.intersect1d(cut.steps, length.steps), longest.steps)
    share, mean, most = (one.values[np.searchsorted(one.steps, steps)] for one in (cut, length, longest))
    asked = share >= LEAST_CUT
    if asked.sum() < max(SHORT, ROWS * len(steps)):
        return None
    shown = asked & (mean < SLACK * share * most)
    if shown.sum() < ROWS * asked.sum():
        return None
    late = level.rows(len(steps), LATE)
    of_cut, of_all, of_longest = (float(one[late].mean()) for one in (share, mean, most))
    return Ended(of_cut, of_all, of_longest, int(shown.sum()), len(steps))


def check(quantities: Quantities) -> Finding:
    """Mean lengths below SLACK × (share counted as cut × longest) in ROWS of the rows."""
    if any(quantities.get(name, SHORT) is None for name in ("truncated", "length", "length_max")):
        return cannot_tell("cut completions, their mean length and the longest are not all logged", "truncated")
    seen = ended(quantities)
    if seen is None:
        return fact(False, "completions that are counted as cut are as long as the longest")
    because = (
        f"{percent(seen.cut)} of completions are counted as cut, which would all be as long as the longest of their "
        f"batch ({number(seen.longest)} tokens), but the mean is {number(seen.mean)}: most of them ended, without the "
        "end token that is looked for"
    )
    evidence = (Sign("rows whose mean length is too short for cut ones", float(seen.shown), column="length"),)
    brief = f"{percent(seen.cut)} counted as cut, but most of them ended"
    return fact(True, because, evidence, explains=FOLLOWS, brief=brief)


TEST = LogTest(
    "end not recognised",
    check,
    needs=("truncated", "length", "length_max"),
    where_logged=True,
    statistic="mean length over (share counted as cut × longest completion), row by row",
    threshold=f"below {SLACK:g} in {ROWS:g} of the rows with {LEAST_CUT:g} or more counted as cut, a fact",
)
