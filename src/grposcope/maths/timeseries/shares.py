"""How many answers a share is of: 0.428 and 0.514 are shares of 500, and 0.7543593631 is 995 of 1,319.

The digits of shares of n answers show n: it is the least number that makes all of them whole. Shares that were rounded
to three digits or more seem to be of 1,000 or 10,000 answers, so that these prove nothing.
"""

from __future__ import annotations

import math

import numpy as np

from grposcope.maths.timeseries.noise import Array

MOST = 10_000
"""Answers that are looked for at most."""

DIGITS = 1e-6
"""What the shares may be rounded by."""


def _answers(values: Array) -> int | None:
    """The number of answers that all values (n,) in [0, 1] are shares of; None if their digits do not show it."""
    different = np.unique(values)
    if len(different) < 3 or different[0] < 0 or different[-1] > 1:
        return None
    counts = np.arange(2, MOST + 1)[:, None]
    off = np.abs(counts * different - np.round(counts * different))
    fits = np.flatnonzero((off <= DIGITS * counts).all(1))
    found = int(counts[fits[0], 0]) if len(fits) else MOST
    return None if found in (1_000, 10_000) else found


def sampling_variance(values: Array) -> float:
    """Mean sampling variance p (1 − p)/n of shares p (E,) of n answers; NaN where n does not show."""
    n = _answers(values)
    return math.nan if n is None else float((values * (1 - values)).mean()) / n
