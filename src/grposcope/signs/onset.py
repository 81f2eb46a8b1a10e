"""Since when: the first step at which a metric has made a tenth of its way from the level before to the level after.

Everything in the package that dates a change of a log asks here, and here alone (`maths.timeseries.onset`).
"""

from __future__ import annotations

import numpy as np

from grposcope.core.finding import Interval
from grposcope.maths.timeseries import onset
from grposcope.maths.timeseries.noise import Array
from grposcope.signs.quantities import MetricSeries


def since(series: MetricSeries, direction: int = 0, course: bool = False, shown: bool = True) -> Interval | None:
    """Since when a metric has risen (direction 1), fallen (-1) or changed (0); None where it cannot be dated.

    Of a metric whose noise is a factor give the logarithms. course: it has a course of its own, which may grow, and it
    is asked when it left that. shown: another test has shown the change.
    """
    return between(series.steps, series.values, direction, course, shown)


def between(
    steps: Array, values: Array, direction: int = 0, course: bool = False, shown: bool = True
) -> Interval | None:
    """The same of values (n,) at these steps (n,)."""
    seen = onset.onset(values, direction, course, shown)
    return None if seen is None else _interval(steps, seen)


def _interval(steps: Array, seen: onset.Onset) -> Interval:
    step, low, high = (int(steps[row]) for row in (seen.row, seen.low, seen.high))
    return Interval(step, low, high)


def parting(proxy: MetricSeries, score: MetricSeries, falls: bool | None = None) -> Interval | None:
    """Since when what is trained on and what is meant have parted; None where it cannot be dated.

    A score that falls parts where it falls; one that stands still, where it no longer goes with the proxy; and one that
    never did, where the proxy begins to rise. falls: whether another test has shown that it falls, None for none.
    """
    fall = since(score, -1, shown=bool(falls)) if falls is not False else None
    if fall is not None or falls:
        return fall
    trained = _at(score.steps, proxy)
    behind = onset.onset(score.values, -1, beside=trained) if np.ptp(trained) > 0 else None
    if behind is not None and _goes_with(trained[: behind.row], score.values[: behind.row]):
        return _interval(score.steps, behind)
    return since(proxy, 1)


def _goes_with(proxy: Array, score: Array) -> bool:
    """Whether a score (n,) rises with the proxy (n,)."""
    return len(score) > 2 and bool(np.ptp(proxy) > 0) and float(np.polyfit(proxy, score, 1)[0]) > 0


def _at(steps: Array, series: MetricSeries) -> Array:
    """Means of a metric over the rows around each of these steps (E,), half way to the next on either side."""
    middle = (steps[1:] + steps[:-1]) / 2
    index = np.searchsorted(middle, series.steps)
    count = np.bincount(index, minlength=len(steps))
    total = np.bincount(index, series.values, minlength=len(steps))
    return np.where(count > 0, total / np.maximum(count, 1), np.interp(steps, series.steps, series.values))
