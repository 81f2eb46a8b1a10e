"""A state that began at once in the middle of a run and lasts: a metric is exactly so in every row since."""

from __future__ import annotations

import numpy as np

from grposcope.core.not_finite import Bools
from grposcope.signs.quantities import SHORT

BEFORE = 0.5
"""Share of the earlier rows that may be in the state."""


def begins(state: Bools) -> int | None:
    """The first of SHORT rows or more up to the end that are all in a state (n,), where the row before is not and at
    most BEFORE of at least SHORT earlier rows are; None where there are none."""
    same = int(np.argmin(np.append(state[::-1], False)))
    first = len(state) - same
    if same < SHORT or first < SHORT or state[:first].mean() > BEFORE:
        return None
    return first
