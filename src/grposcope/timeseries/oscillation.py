"""Oscillation of a metric: what the two detectors, `periodogram` and `spectral_peak`, have in common.

Oscillations may start late, or be fast in a long run. So besides the whole series (averaged to WINDOW blocks) its
second half is searched, and, where blocks are longer than a row, its last WINDOW rows; p-values are multiplied by the
number of windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from grposcope.records import Estimate
from grposcope.timeseries.noise import Array

WINDOW = 200
"""Rows or blocks that are searched together."""

LEAST = 40
"""Least number of rows: a shorter series is not searched."""

FASTEST = 6.0
"""Shortest period, in rows or blocks."""


@dataclass(frozen=True)
class Oscillation:
    """The strongest oscillation of a series.

    p: probability that noise alone shows one as strong. period in rows; amplitude at the end of the window, in the
    metric's unit; share of the detrended variance that it explains. root: modulus of the multiplier per row with
    its standard error; growing: p-value of "it does not grow" (γ ≤ 0), fading: of "it does not fade".
    first, last: rows of the window in which it was found.
    """

    p: float
    period: float
    amplitude: float
    share: float
    root: Estimate
    growing: float
    fading: float
    first: int
    last: int

    @staticmethod
    def none(n: int, first: int, last: int, reason: str) -> Oscillation:
        """No oscillation, p = 1, in a window of n rows or blocks that holds nothing to judge by."""
        return Oscillation(1.0, math.nan, 0.0, 0.0, Estimate(math.nan, math.nan, n, reason), 1.0, 1.0, first, last)


def windows(y: Array) -> list[tuple[int, int]]:
    """First row and end of each window: all rows, the second half, the last WINDOW; none if too few or constant."""
    n = len(y)
    if n < LEAST or np.ptp(y) == 0:
        return []
    spans = [(0, n)]
    if n >= 2 * LEAST:
        spans.append((n // 2, n))
    if n > WINDOW:
        spans.append((n - WINDOW, n))
    return spans


def trend_columns(n: int) -> Array:
    """Columns (n, 7) of the smooth trend that is no oscillation: a cubic and saturating exponentials."""
    share = (np.arange(n) + 0.5) / n
    powers = [share**k for k in range(4)]
    return np.array(powers + [np.exp(-share / tau) for tau in (0.03, 0.1, 0.3)]).T
