"""A reward at another level from one row on, and whether what is sampled moves there.

A row is a jump where the straight lines through the _LINE rows before it and those from it on are apart there by so
many spreads of these rows about them, and three rows on either side by _AT_ONCE of that and of what WINDOW rows are:
what is learned takes more rows. Method of this project; no publication.
"""

from __future__ import annotations

import numpy as np

from grposcope.core.run import Ints
from grposcope.core.text import listed
from grposcope.maths.timeseries.noise import Array
from grposcope.signs.moves_alone import distance
from grposcope.signs.quantities import MetricSeries, Quantities

WINDOW = 12
"""Rows on either side of a jump whose levels are told."""

_LINE, _AT_ONCE = 20, 0.75

_AROUND = 5
"""Steps on either side of a jump whose levels of other metrics are compared."""

_UNMOVED, _SPREADS, _NOISE = 0.1, 2.0, 0.3
"""Change over the level, or in standard deviations of the rows on either side and then over the level, up to which a
metric did not move."""


def jump(values: Array, direction: int, clear: float) -> int | None:
    """The row of the largest jump of the values (n,), up for direction 1, down for −1, by `clear` spreads or more; None
    where there is none."""
    rows = np.arange(_LINE, len(values) - _LINE + 1)
    if not len(rows):
        return None
    sides = np.lib.stride_tricks.sliding_window_view(values, _LINE)
    first, first_spread = _ends_of_lines(sides[rows - _LINE], _LINE - 0.5)
    last, last_spread = _ends_of_lines(sides[rows], -0.5)
    sizes, spreads = direction * (last - first), np.maximum(first_spread, last_spread)
    near, levels = (direction * _steps(values, rows, k) for k in (3, WINDOW))
    sizes = np.where((sizes > clear * spreads) & (near > _AT_ONCE * np.maximum(sizes, levels)), sizes, -np.inf)
    best = int(np.argmax(sizes))
    return int(rows[best]) if sizes[best] > 0 else None


def _steps(values: Array, rows: Ints, k: int) -> Array:
    """The mean of the k values (n,) from each row (w,) on, less that of the k before it."""
    means = np.lib.stride_tricks.sliding_window_view(values, k).mean(axis=1)
    return np.asarray(means[rows] - means[rows - k])


def _ends_of_lines(sides: Array, at: float) -> tuple[Array, Array]:
    """The straight lines through the rows of each window (w, _LINE), at a place of it, and the spreads about them."""
    places = np.arange(_LINE) - (_LINE - 1) / 2
    means, slopes = sides.mean(axis=1), sides @ places / (places @ places)
    rest = sides - means[:, None] - slopes[:, None] * places
    return means + slopes * (at - (_LINE - 1) / 2), rest.std(axis=1, ddof=2)


def unmoved(quantities: Quantities, step: float) -> str:
    """That two metrics or more of what is sampled, all that are logged of them, do not move at a step: their levels on
    either side, in words; empty where one moves, or too few are logged."""
    sampled = [distance(quantities), quantities.get("entropy"), quantities.get("length")]
    logged = [series for series in sampled if series is not None]
    sides = [_on_both_sides(series, step) for series in logged]
    still = all(len(before) > 1 and len(after) > 1 and _stays(before, after) for before, after in sides)
    if len(logged) < 2 or not still:
        return ""
    return listed([
        quantities.went(series.name, float(np.median(before)), float(np.median(after)))
        for series, (before, after) in zip(logged, sides, strict=True)
    ])  # fmt: skip


def _on_both_sides(series: MetricSeries, step: float) -> tuple[Array, Array]:
    """The values of the _AROUND steps before a step, and of as many from it on."""
    before = (series.steps < step) & (series.steps >= step - _AROUND)
    after = (series.steps >= step) & (series.steps < step + _AROUND)
    return series.values[before], series.values[after]


def _stays(before: Array, after: Array) -> bool:
    """Whether the levels on both sides are the same, to _UNMOVED of the first, or to _SPREADS of the rows and at most
    _NOISE of it."""
    level = abs(float(np.median(before)))
    size = abs(float(np.median(after)) - float(np.median(before)))
    return size <= max(_UNMOVED * level, min(_SPREADS * float(max(before.std(), after.std())), _NOISE * level))
