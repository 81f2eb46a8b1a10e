"""A reward that is lost for a few steps and is back, several times at one interval, or together with what is sampled.

A row is lost where it is far below the running median of its neighbours, by their robust spread and by half of that
median. Rewards that dip by chance do so at no interval, and the completions of such a row are as long as any. Method of
this project; no publication.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Grade, Sign, fact
from grposcope.core.text import apart
from grposcope.maths.timeseries.noise import robust_spread
from grposcope.maths.timeseries.running import running_median
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities

OUTAGE = "outage"

CLEAR = 6.0
"""Robust spreads below the running median at which a row is lost."""

DEEP = 0.5
"""Share of the running median that a lost row lacks, at least."""

WINDOW, SHARE = 11, 0.1
"""Rows of the running median: at least so many, and this share of the run."""

MOST = 0.25
"""Share of the rows that may be lost: more are no outage."""

TIMES = 3
"""Outages at one interval, at least."""

APART = 4
"""Rows from one outage to the next, at least."""

AROUND = 5
"""Rows on either side of an outage that are compared with it."""

OTHER_LENGTH, OTHER_MISMATCH = 1.5, 3.0
"""Factors by which the lengths or the mismatch of lost rows differ from those around them, at least."""

FOLLOWS = (
    "reward decline", "held-out decline", "length", "oscillation", "growing oscillation", "starved", "empty steps",
    "constant reward", "sampler mismatch", "wrong weights at the sampler", "answers shorten", "reward hacking",
)  # fmt: skip

BY_THE_CLOCK = (
    "find what happens right before such a step (an evaluation, a checkpoint, a sampler that sleeps or wakes), leave "
    "it out for one interval, and read a completion of such a step: where it is junk, the sampler's weights or cache "
    "were not restored (the deeper sleep of vLLM drops the weights, which have to be sent again)"
)
"""What to do where the outages come at one interval."""

OF_THE_SAMPLER = (
    "compare a checksum of the sampler's weights with the trainer's at such a step (after a resume or a wake-up they "
    "have to be sent before the first rollout), and leave those rollouts out"
)
"""What to do where the sampler was another policy in those rows."""


@dataclass(frozen=True)
class Outages:
    """Lost rows (n,) as a mask, the first row of each outage, and the rows from one to the next, 0 where these differ.

    lost, around: the median reward of the lost rows, and of the AROUND rows on either side of each.
    """

    rows: NDArray[np.bool_]
    starts: NDArray[np.int64]
    every: int
    lost: float
    around: float


def check(quantities: Quantities) -> Finding:
    """Rows whose reward is lost, at one interval, or with other completions or another sampler."""
    reward = quantities.require("reward", LEAST)
    found = outages(reward.values)
    if found is None:
        return fact(False, "no reward is lost for a few steps")
    first = int(reward.steps[found.starts[0]])
    low, usual = apart(found.lost, found.around)
    subject = f"the reward is {low} on {int(found.rows.sum())} of {len(reward)} rows, from step {first:,} on,"
    because = f"{subject} and {usual} on those around them"
    evidence = [
        Sign("reward of the lost rows, median", found.lost, column=reward.name),
        Sign("reward of the rows around them, median", found.around, column=reward.name),
    ]
    beside = [(series, *_levels(series, reward, found.rows)) for series in _of_what_is_sampled(quantities)]
    differ = [one for one in beside if _differs(*one)]
    if not found.every and not differ:
        return fact(False, "single rows have a lower reward, at no interval", evidence)
    grades: tuple[Grade, Grade] = ("warning", "failing" if found.every else "warning")
    brief = f"reward {usual} → {low} on {int(found.rows.sum())} rows"
    if found.every:
        because, brief = f"{because}, every {found.every} rows", f"{brief}, every {found.every}"
    for series, inside, outside in differ:
        said = " → ".join(apart(outside, inside))
        because = f"{because}; {quantities.key(series.name)} goes {said} there"
        evidence.append(Sign(f"{series.name} of the lost rows, median", inside, column=series.name))
    of_sampler = any(series.name.startswith("mismatch/") for series, *_ in differ)
    remedy = OF_THE_SAMPLER if of_sampler and not found.every else BY_THE_CLOCK
    return fact(
        True, because, evidence, first, brief=brief, grades=grades, remedy=remedy,
        explains=FOLLOWS,
    )  # fmt: skip


def without_outages(series: MetricSeries) -> MetricSeries:
    """The series without the rows of outages, for tests of what stays."""
    found = outages(series.values)
    if found is None or series.sampling is not None:
        return series
    return replace(series, steps=series.steps[~found.rows], values=series.values[~found.rows])


def outages(values: NDArray[np.float64]) -> Outages | None:
    """Where the values (n,) are lost for a few rows; None where they are not, or from some row on for good."""
    n = len(values)
    middle = running_median(values, max(int(SHARE * n) | 1, WINDOW))
    below = middle - values
    spread = robust_spread(below)
    rows = (below > CLEAR * spread) & (below > DEEP * np.abs(middle)) & (spread > 0)
    rows[: int(np.argmin(np.append(rows, False)))] = False  # one that the log begins or ends with is not back
    rows[n - int(np.argmin(np.append(rows[::-1], False))) :] = False
    if not rows.any() or rows.mean() > MOST:
        return None
    starts = np.flatnonzero(rows & ~np.append(False, rows[:-1]))
    sides = np.zeros(n, bool)
    for start in starts:
        behind = start + int(np.argmin(np.append(rows[start:], False)))
        sides[max(start - AROUND, 0) : start] = True
        sides[behind : behind + AROUND] = True
    sides &= ~rows
    return Outages(rows, starts, _interval(starts, n), float(np.median(values[rows])), float(np.median(values[sides])))


def _interval(starts: NDArray[np.int64], n: int) -> int:
    """Rows from one outage to the next where they all are alike and none is left out over n rows, else 0."""
    gaps = np.diff(starts)
    if len(starts) < TIMES or np.ptp(gaps) or gaps[0] < APART:
        return 0
    every = int(gaps[0])
    return every if starts[0] < 2 * every and n - starts[-1] <= every + 1 else 0


def _of_what_is_sampled(quantities: Quantities) -> list[MetricSeries]:
    """What is logged of completions and of the sampler: their length, and each mismatch."""
    names = ["length", *(name for name in quantities.run.table if name.startswith("mismatch/"))]
    return [series for name in names if (series := quantities.column(name)) is not None and len(series) >= LEAST]


def _levels(series: MetricSeries, reward: MetricSeries, rows: NDArray[np.bool_]) -> tuple[float, float]:
    """The median of a metric over the lost rows, and over all others."""
    lost = np.isin(series.steps, reward.steps[rows])
    if not lost.any() or lost.all():
        return math.nan, math.nan
    return float(np.median(series.values[lost])), float(np.median(series.values[~lost]))


def _differs(series: MetricSeries, inside: float, outside: float) -> bool:
    """Whether a metric is another in the lost rows than in others: longer, shorter, or a larger mismatch."""
    if not min(inside, outside) > 0:
        return False
    if series.name.startswith("mismatch/"):
        less = 1.0 if series.name == "mismatch/mult_error" else 0.0
        return inside - less > OTHER_MISMATCH * max(outside - less, 0.0)
    return not 1 / OTHER_LENGTH <= inside / outside <= OTHER_LENGTH


TEST = LogTest(
    OUTAGE,
    check,
    needs=("reward",),
    statistic="rows whose reward is far below its running median, the interval between them, and the length and the "
    "mismatch of the same rows",
    threshold=f"{CLEAR:g} spreads and {DEEP:g} of the median; {TIMES} or more at one interval, or lengths "
    f"{OTHER_LENGTH:g} × or a mismatch {OTHER_MISMATCH:g} × those of other rows",
)
