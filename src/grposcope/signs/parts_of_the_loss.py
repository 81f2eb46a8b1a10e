"""The coefficient with which the KL, or the entropy, enters the loss, read off rows in which the loss is a multiple.

With one update on each batch and advantages that sum to 0 within groups, the policy's part of the loss is 0 but for
rounding, so that what is logged as the loss is coefficient × KL, or − coefficient × entropy, whatever the settings say.
Where tokens of long and short completions are weighed alike, it is noise of one size beside that.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from grposcope.maths.timeseries.noise import Array
from grposcope.signs.lasting_state import begins
from grposcope.signs.quantities import LEAST, SHORT, Quantities

ALONG = 0.99
"""Share of the variance of the loss that the multiple explains, at least."""

ALIKE = 0.1
"""Spread of the multiple, row by row, over its median, at most: median absolute deviation."""


CLEAR, SAME_NOISE = 4.0, 2.0
"""Size of a multiple over the noise beside it from which a row shows it, and how many times that noise the rest may be
in these rows."""

SURE = 4.0
"""Standard errors that the slope of the loss over the other metric is, at least."""

COEFFICIENT = re.compile(r"(.*[_./])?(kl_loss_coef|kl_coef|init_kl_coef|kl_beta|kl_ctl)")
"""Columns of coefficients of a KL term."""


@dataclass(frozen=True)
class _Multiple:
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


def loss_beside_noise(quantities: Quantities, quantity: str) -> _Multiple | None:
    """The multiple of a quantity above 0 that the loss is but for noise of one size, by the rows in which the multiple
    is CLEAR × that noise; None where fewer than SHORT rows are, where they do not agree, or where either is not logged.

    The noise is that of the half of the rows in which the quantity is smallest.
    """
    loss, distance = quantities.column("loss"), quantities.get(quantity, LEAST)
    if loss is None or distance is None or distance.values.min() < 0:
        return None
    _, a, b = np.intersect1d(loss.steps, distance.steps, return_indices=True)
    y, x = loss.values[a], distance.values[b]
    y, x = y[x > 0], x[x > 0]
    if len(x) < 2 * LEAST or not np.ptp(x) or not np.ptp(y):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = float(x @ y / (x @ x))
        rest = y - ratio * x
    if not math.isfinite(ratio) or not np.isfinite(rest).all():
        return None
    noise = float(np.std(rest[np.argsort(x)[: len(x) // 2]]))
    clear = abs(ratio) * x > CLEAR * noise
    if clear.sum() < SHORT or np.std(rest[clear]) > max(SAME_NOISE * noise, ALIKE / 2 * abs(ratio) * x[clear].max()):
        return None
    if np.median(np.abs(y[clear] / x[clear] - ratio)) > ALIKE * abs(ratio) or not _follows(x[clear], y[clear], ratio):
        return None
    return _Multiple(ratio, distance.name, loss.name, int(clear.sum()))


def _follows(x: Array, y: Array, ratio: float) -> bool:
    """Whether y (n,) goes up and down with x by about that ratio, which two constants would not show."""
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / max(float(x @ x), 1e-300))
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / max(float(x @ x), 1e-300) / max(len(x) - 2, 1))
    return abs(slope) > SURE * error and 0.5 < slope / ratio < 1.5


def coefficient_in_force(quantities: Quantities) -> tuple[str, float | None]:
    """Name and value of the coefficient of the KL, of a column or of the settings; None where neither has it."""
    for column in quantities.run.table:
        series = quantities.column(column) if COEFFICIENT.fullmatch(column) else None
        if series is not None:
            return quantities.key(column), float(np.median(series.values))
    stated = quantities.run.setting("kl")
    return "the coefficient", float(stated) if isinstance(stated, int | float) else None


def loss_as_multiple(quantities: Quantities, quantity: str) -> _Multiple | None:
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
    return _Multiple(ratio, distance.name, loss.name, len(x))
