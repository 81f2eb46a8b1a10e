"""Whether paired differences have a mean other than 0, of every column at once, by flipping signs of whole units.

Under the null the two sides of a unit can be exchanged, so that its differences d in all columns may change their sign
together. z = Σ d / √Σ d² then has mean 0 and variance 1 over all flips, exactly; the p-value of a column is the share
of flips in which the largest |z| of all columns is as large, as in `within_groups`.

P: units, such as prompts. F: columns.
"""

from __future__ import annotations

import numpy as np

from grposcope.maths.within_groups import Floats, Singles, tail

BLOCK = 512
"""Columns that are worked on at a time."""


def flipped(differences: Singles, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """z and family-wise p (F,) of the differences (P, F); 0 and 1 for a column that is 0 in all units."""
    units, count = differences.shape
    signs = rng.choice(np.array([-1, 1], np.float32), (draws, units))
    z, largest = np.zeros(count), np.zeros(draws)
    for first in range(0, count, BLOCK):
        own = differences[:, first : first + BLOCK]
        deviation = np.sqrt((own**2).sum(0))
        scale = np.where(deviation > 1e-9, deviation, np.inf)
        z[first : first + BLOCK] = own.sum(0) / scale
        largest = np.maximum(largest, np.abs((signs @ own) / scale).max(1, initial=0.0))
    largest.sort()
    return z, np.where(z == 0, 1.0, tail(np.abs(z), largest))
