"""Values that were copied onto the steps after them: a metric measured at every k-th row and written in all of them.

A copy says nothing new, and k copies of a value look like a run of little noise. The values of such a column change
only from one block of k rows to the next. A column of few different values may do so by chance, with probability
k^−changes for each of k places where the blocks may begin; below CHANCE, the copies are taken out.
"""

from __future__ import annotations

import math

import numpy as np

from grposcope.core.run import Bools, Floats

CHANCE = 1e-4
"""Chance below which blocks of equal values are no accident."""

LONGEST = 1000
"""Rows of a block."""

MOVES = 0.5
"""Share of the blocks that must differ from the block before: a metric that stands still is no staircase."""


def copies(column: Floats) -> Bools | None:
    """Rows (N,) whose value is a copy of the one before; None where the column is no staircase. NaN rows are none."""
    there = np.flatnonzero(~np.isnan(column))
    values = column[there]
    if len(values) < 4 or (values[1:4] != values[:3]).sum() > 2:
        return None
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    if len(changes) < 3 or 2 * len(changes) > len(values):
        return None
    block = int(np.gcd.reduce(np.diff(changes)))
    blocks = len(values) / block if block else 0.0
    if not 2 <= block <= LONGEST or len(changes) < MOVES * (blocks - 1):
        return None
    if math.log(block) * (1 - len(changes)) > math.log(CHANCE):
        return None
    found = np.zeros(len(column), bool)
    first = changes[0] % block
    found[there] = (np.arange(len(values)) - first) % block != 0
    found[there[0]] = False
    return found
