"""Metrics of drawn completions that were not measured: one number in every row, or rows on a straight line.

A KL, an entropy or a loss over other completions at every step is another number each time. Where it is one of _DIGITS
digits or more and the same in all rows, or its rows have one slope to the last digits of a double, it was not measured,
or all rows are of one batch. Zeros say something of their own. Method of this project; no publication.
"""

from __future__ import annotations

import numpy as np

from grposcope.core.text import listed, number
from grposcope.maths.timeseries.noise import Array
from grposcope.signs.quantities import Quantities

_NAMES = ("kl", "entropy", "loss", "policy_loss", "grad_norm")
_FEWEST = 12
_DIGITS = 6
_STRAIGHT = 1e-9
"""Largest second difference over the range of a straight line."""


def clause(quantities: Quantities) -> str:
    """Which metrics were not measured, with what their rows are; empty where none is, or the reward is one number."""
    reward = quantities.get("reward", _FEWEST)
    if reward is None or np.ptp(reward.values) == 0:
        return ""
    same, straight = [], []
    for name in _NAMES:
        series = quantities.get(name, _FEWEST)
        if series is None:
            continue
        key, rows = quantities.key(series.name), f"in all {len(series):,} rows"
        if _is_one_number(series.values):
            same.append(f"{key} is {number(float(series.values[0]))} {rows}")
        elif _is_line(series.steps, series.values):
            straight.append(f"{key} lies on a straight line {rows}")
    said = [*same, *straight]
    return f"{listed(said)}: such numbers are not measured on new completions at every step" if said else ""


def _is_one_number(values: Array) -> bool:
    """Whether all values (n,) are one number other than 0 that has _DIGITS digits or more."""
    first = float(values[0])
    return first != 0 and bool((values == first).all()) and float(f"{first:.{_DIGITS - 1}g}") != first


def _is_line(steps: Array, values: Array) -> bool:
    """Whether values (n,) differ and have one slope over their steps (n,)."""
    if np.ptp(values) == 0 or np.ptp(steps) == 0:
        return False
    slope = (values[-1] - values[0]) / (steps[-1] - steps[0])
    line = values[0] + slope * (steps - steps[0])
    return bool(np.abs(values - line).max() <= _STRAIGHT * np.ptp(values))
