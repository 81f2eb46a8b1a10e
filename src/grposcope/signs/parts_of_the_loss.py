"""The coefficient with which the KL, or the entropy, enters the loss, read off rows in which the loss is a multiple.

With one update on each batch and advantages that sum to 0 within groups, the policy's part of the loss is 0 but for
rounding, so that what is logged as the loss is coefficient × KL, or − coefficient × entropy, whatever the settings say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from grposcope.signs.lasting_state import begins
from grposcope.signs.quantities import LEAST, Quantities

ALONG = 0.99
"""Share of the variance of the loss that the multiple explains, at least."""

ALIKE = 0.1
"""Spread of the multiple, row by row, over its median, at most: median absolute deviation."""


@dataclass(frozen=True)
class Multiple:
    """In `rows` rows the loss is `coefficient` × another metric. of, loss: names of the columns."""

    coefficient: float
    of: str
    loss: str
    rows: int


def changed_multiple(quantities: Quantities, quantity: str, least: float, sign: int = 1) -> tuple[int, float] | None:
    """The step since which the loss is another multiple of a quantity, of `least` or more, and that multiple, where
    it was at most half as large before; None where it was not, or where rows do not agree. sign: −1 for a multiple
    below 0, of −least or less."""
    loss, distance = quantities.column("loss"), quantities.get(quantity, LEAST)
    if loss is None or distance is None:
        return None
    steps, a, b = np.intersect1d(loss.steps, distance.steps, return_indices=True)
    y, x = loss.values[a], distance.values[b]
    steps, y, x = steps[x > 0], y[x > 0], x[x > 0]
    with np.errstate(over="ignore"):
        ratios = np.nan_to_num(sign * y / x)
    first = begins(ratios >= least)
    if first is None:
        return None
    ratio = float(np.median(ratios[first:]))
    spread = float(np.median(np.abs(ratios[first:] - ratio)))
    if spread > ALIKE * ratio or np.median(np.maximum(ratios[:first], 0)) > ratio / 2:
        return None
    return int(steps[first]), sign * ratio


def loss_as_multiple(quantities: Quantities, quantity: str) -> Multiple | None:
    """The multiple of a quantity above 0 that the loss is; None where it is none, or where either is not logged."""
    loss, distance = quantities.column("loss"), quantities.get(quantity, LEAST)
    if loss is None or distance is None or distance.values.min() < 0:
        return None
    _, a, b = np.intersect1d(loss.steps, distance.steps, return_indices=True)
    y, x = loss.values[a], distance.values[b]
    y, x = y[x > 0], x[x > 0]
    if len(x) < LEAST or not np.ptp(x) or not np.ptp(y):
        return None
    with np.errstate(over="ignore"):
        ratio = float(np.median(y / x))
    if not math.isfinite(ratio):
        return None
    rest = float(((y - ratio * x) ** 2).sum())
    with np.errstate(over="ignore"):
        spread = float(np.median(np.abs(y / x - ratio)))
    if not ratio or rest > (1 - ALONG) * float((y**2).sum()) or spread > ALIKE * abs(ratio):
        return None
    return Multiple(ratio, distance.name, loss.name, len(x))
