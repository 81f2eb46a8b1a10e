"""Movements of curves: how far they rise at most, from which row to which, and where a tenth of it is made."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grposcope.maths.timeseries.noise import Array

TENTH = 0.1
"""Share of its way that a change has made at its onset."""


def movements(ways: Array) -> tuple[Array, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The largest rise of each curve (C, n), which is at 0 before its first row.

    The sizes (C,), the last row before and the row at the top, and the onsets.
    """
    ways = np.column_stack([np.zeros(len(ways)), ways])
    lowest = np.minimum.accumulate(ways, axis=1)
    end = np.argmax(ways - lowest, axis=1)
    each, rows = np.arange(len(ways)), np.arange(ways.shape[1])
    low = lowest[each, end]
    size = ways[each, end] - low
    slack = 1e-9 * np.maximum(np.ptp(ways, axis=1), 1e-300)
    before = (ways <= (low + slack)[:, None]) & (rows <= end[:, None])
    begin = ways.shape[1] - 1 - np.argmax(before[:, ::-1], axis=1)
    begun = (ways >= (low + TENTH * size)[:, None] - slack[:, None]) & (rows > begin[:, None])
    onset = np.maximum(np.argmax(begun, axis=1) - 1, 0)
    return size, np.maximum(begin - 1, 0), np.maximum(end - 1, 0), onset
