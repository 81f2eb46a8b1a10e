"""Whether the last rows of a run ask for a look at it at once: a gross change costs nothing to see, a diagnosis does.

A row asks for a look where each of the last RUN values of a metric lies beyond all of the REFERENCE values before
them, or where they are all equal and those before were not. Of values that are drawn alike and independently the first
happens at a row with a chance of 2 / C(RUN + REFERENCE, RUN), about 1 in 160,000; whatever asks, the look that follows
judges, at a level that holds at any row (`faults.looks`). Looks are then due at some rows after it too (AGAIN), since a
few rows may be too few to be sure.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

RUN, REFERENCE = 5, 25
"""Rows that are compared, and rows before them that they are compared with."""

AGAIN = (0, 3, 6, 10, 15, 25)
"""Rows after a change at which looks are due."""

MOST = 60
"""Looks that are asked for in a run, at most."""

PASSED_OVER = ("step", "time", "epoch", "tokens", "seconds", "num_tokens", "total", "learning_rate_schedule")
"""Beginnings of the names of what grows by itself or says how fast a run is."""


class RowSigns:
    """The last values of each metric. rows: how many rows were taken."""

    def __init__(self) -> None:
        self._values: dict[str, deque[float]] = {}
        self._due: set[int] = set()
        self._asked = 0
        self._quiet_until: dict[str, int] = {}
        self.rows = 0

    def take(self, row: Mapping[str, object]) -> bool:
        """Take a row; whether a look is due at it."""
        self.rows += 1
        for name, value in row.items():
            if isinstance(value, int | float) and math.isfinite(value) and not name.startswith(PASSED_OVER):
                values = self._values.setdefault(name, deque(maxlen=RUN + REFERENCE))
                values.append(float(value))
                if self.rows >= self._quiet_until.get(name, 0) and _changed(values):
                    self._quiet_until[name] = self.rows + REFERENCE
                    self._due |= {self.rows + later for later in AGAIN}
        due = self.rows in self._due and self._asked < MOST
        self._due.discard(self.rows)
        self._asked += due
        return due


def _changed(values: deque[float]) -> bool:
    """Whether the last RUN values lie beyond all before them, or are all equal where those before were not."""
    if len(values) < RUN + REFERENCE:
        return False
    every = list(values)
    before, last = every[:-RUN], every[-RUN:]
    low, high = min(before), max(before)
    if max(last) == min(last):
        return low < high
    return min(last) > high or max(last) < low
