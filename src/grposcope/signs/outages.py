"""Where a metric is lost for a few rows and is back, and the interval of that.

A row is lost where it is far below the running median of its neighbours, by their robust spread, there and in the whole
run, and by half of that median. Method of this project; no publication.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grposcope.maths.timeseries.noise import robust_spread
from grposcope.maths.timeseries.running_median import running_median
from grposcope.signs.quantities import MetricSeries

CLEAR = 6.0
"""Robust spreads below the running median at which a row is lost."""

DEEP = 0.5
"""Share of the running median that a lost row lacks, at least."""

WINDOW, SHARE = 11, 0.1
"""Rows of the running median: at least so many, and this share of the run."""

NEAR = 3
"""Windows of the running median in which the spread there is taken."""

MOST = 0.25
"""Share of the rows that may be lost: more are no outage."""

TIMES = 3
"""_Outages at one interval, at least."""

APART = 4
"""Rows from one outage to the next, at least."""

AROUND = 5
"""Rows on either side of an outage that are compared with it."""


@dataclass(frozen=True)
class _Outages:
    """Lost rows (n,) as a mask, the first row of each outage, and the rows from one to the next, 0 where these differ.

    stretches: first row and the row behind the last of TIMES or more lost rows on end that are exactly one value.
    sides: the AROUND rows on either side of each (n,). lost, around: the median reward of the lost rows, and of those.
    """

    rows: NDArray[np.bool_]
    sides: NDArray[np.bool_]
    starts: NDArray[np.int64]
    every: int
    lost: float
    around: float
    stretches: tuple[tuple[int, int], ...] = ()


def without_outages(series: MetricSeries) -> MetricSeries:
    """The series without the rows of outages, for tests of what stays."""
    found = outages(series.values)
    if found is None or (series.sampling is not None and not found.stretches):
        return series
    return replace(series, steps=series.steps[~found.rows], values=series.values[~found.rows], sampling=None)


def outages(values: NDArray[np.float64]) -> _Outages | None:
    """Where the values (n,) are lost for a few rows; None where they are not, or from some row on for good."""
    n = len(values)
    window = max(int(SHARE * n) | 1, WINDOW)
    middle = running_median(values, window)
    below = middle - values
    there = 1.4826 * running_median(np.abs(below), NEAR * window)  # a reward that is solved later on was noisier before
    spread = np.maximum(robust_spread(below), there)
    rows = (below > CLEAR * spread) & (below > DEEP * np.abs(middle)) & (spread > 0)
    rows |= _at_one_value(values)
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
    lost, around = (float(np.median(values[where])) for where in (rows, sides))
    return _Outages(rows, sides, starts, _interval(starts, n), lost, around, _stretches(rows & (values == lost)))


def _at_one_value(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Rows (n,) in which TIMES values or more on end are exactly one, lost beside the WINDOW rows before and as many
    behind: more than half of a running median may be so."""
    rows = np.zeros(len(values), bool)
    same = values[1:] == values[:-1]
    for a, b in _stretches(np.append(same, False) | np.append(False, same)):
        before, behind = values[max(a - WINDOW, 0) : a], values[b : b + WINDOW]
        if min(len(before), len(behind)) < AROUND or np.ptp(values[a:b]):
            continue
        beside = min(float(np.median(before)), float(np.median(behind)))
        spread = max(float(before.std()), float(behind.std()))
        rows[a:b] = beside - values[a] > max(CLEAR * spread, DEEP * abs(beside))
    return rows


def _stretches(rows: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """First row and the row behind the last of every TIMES or more of these rows (n,) on end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], rows, [False]]).astype(np.int8)))
    return tuple((int(a), int(b)) for a, b in edges.reshape(-1, 2) if b - a >= TIMES)


def _interval(starts: NDArray[np.int64], n: int) -> int:
    """Rows from one outage to the next where they all are alike and none is left out over n rows, else 0."""
    gaps = np.diff(starts)
    if len(starts) < TIMES or np.ptp(gaps) or gaps[0] < APART:
        return 0
    every = int(gaps[0])
    return every if starts[0] < 2 * every and n - starts[-1] <= every + 1 else 0
