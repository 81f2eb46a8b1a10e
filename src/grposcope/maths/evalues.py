"""Evidence against a null hypothesis that may be looked at after every unit: products of likelihood ratios.

Under the null hypothesis a ratio q/p of each further unit has mean 1 (or less) given all earlier ones, so that the
product is a martingale, and so is a mixture of such products over alternatives. By Ville's inequality its largest value
so far exceeds 1/α with a probability of at most α (Ville 1939; Ramdas, Grünwald, Vovk & Shafer 2023): the reciprocal is
a p-value at any time, for any number of units, without an approximation. Under an alternative its logarithm grows by
KL(q‖p) per unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _RunningEvidence:
    """What N units say for K alternatives together.

    log_e (N,): log of the mixture after each unit. each (K,): log product of each alternative over all units. best: the
    alternative with the largest, -1 without any. p: valid at any time.
    """

    log_e: Floats
    each: Floats
    best: int
    p: float


def mixture(increments: Floats, weights: Floats | None = None) -> _RunningEvidence:
    """The mixture of products from log ratios (K, N), which may be -inf; weights (K,) sum to 1, equal by default.

    NaN counts as nothing seen. Without units or alternatives p is 1.
    """
    count, units = increments.shape
    if not count or not units:
        return _RunningEvidence(np.zeros(units), np.zeros(count), -1, 1.0)
    sums = np.cumsum(np.where(np.isnan(increments), 0.0, increments), 1)
    parts = sums + np.log(np.full(count, 1 / count) if weights is None else weights)[:, None]
    largest = parts.max(0)
    height = np.where(largest == -np.inf, 0.0, largest)
    with np.errstate(divide="ignore"):
        log_e = height + np.log(np.exp(parts - height).sum(0))
    p = math.exp(-max(0.0, float(log_e.max())))
    return _RunningEvidence(log_e, sums[:, -1], int(sums[:, -1].argmax()), p)


def began(increments: Floats) -> int:
    """The first unit of the stretch up to the end whose increments (N,) have the largest sum; -1 for no units."""
    if not len(increments):
        return -1
    tails = np.cumsum(np.where(np.isnan(increments), 0.0, increments)[::-1])[::-1]
    return int(tails.argmax())
