"""A reward that is lost for a few rows and is back: an outage of a grader, a tool or a sampler, and nothing learned.

Such rows make the noise of the whole run look large and lasting, so that a gain is lost in it. Method of this project.
"""

from __future__ import annotations

import numpy as np

from grposcope.maths.timeseries.noise import Array, robust_spread
from grposcope.maths.timeseries.running_median import running_median

MOST = 0.1
"""Share of the rows that a dip may last."""

WINDOW = 0.25
"""Share of the rows over whose running median a dip is seen."""

CLEAR = 6.0
"""Robust spreads below the running median at which a row belongs to a dip."""

AROUND = 5
"""Rows on either side, which have to be at one level, to half of the dip."""


def short_dip(values: Array) -> tuple[int, int] | None:
    """First row of the one short dip of the values (n,) and the row behind its last; None where there is none."""
    n = len(values)
    below = running_median(values, max(int(WINDOW * n) | 1, 3)) - values
    spread = robust_spread(below)
    rows = np.flatnonzero(below > CLEAR * spread) if spread > 0 else np.empty(0, np.int64)
    if not len(rows):
        return None
    first, behind = int(rows[0]), int(rows[-1]) + 1
    if behind - first > MOST * n or behind - first > 2 * len(rows) or first < AROUND or behind > n - AROUND:
        return None
    before, after = (
        float(np.median(span)) for span in (values[first - AROUND : first], values[behind : behind + AROUND])
    )
    deep = min(before, after) - float(np.median(values[first:behind]))
    return (first, behind) if abs(before - after) < deep / 2 else None
