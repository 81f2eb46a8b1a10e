"""Pareto k̂: how heavy the tail of importance weights is, and so whether their mean and variance can be estimated.

A generalised Pareto distribution with shape k is fitted to the M = min(n/5, 3√n) largest of n weights, less the largest
of the others, by the estimator of Zhang & Stephens (Technometrics 51, 2009); the estimate is drawn to 0.5 with the
weight of 10 observations (Vehtari et al., JMLR 25, 2024). Moments up to 1/k exist: with k < 1/2 the variance does. From
n weights, means are to be trusted up to k = min(1 − 1/log₁₀ n, 0.7).
"""

from __future__ import annotations

import math

import numpy as np

from grposcope.maths.importance import Floats

NO_CHOICE, NO_NUMBER = 0.5, 0.7
"""k̂ above which no correction is chosen, and above which no error is given."""

LEAST = 25
"""Weights from which a tail, of at least five, is fitted."""

_PRIOR = 10


def khat(log_weights: Floats) -> float:
    """k̂ of weights (n,) from their logarithms; NaN for fewer than LEAST, −∞ where the tail does not vary."""
    n = len(log_weights)
    if n < LEAST:
        return math.nan
    size = math.ceil(min(n / 5, 3 * math.sqrt(n)))
    ordered = np.sort(np.partition(log_weights, n - size - 1)[n - size - 1 :])
    weights = np.exp(ordered - ordered[-1])
    tail = weights[1:] - weights[0]
    if tail[-1] <= 1e-12:
        return -math.inf
    shape = _zhang_stephens(np.maximum(tail, 1e-300))
    return (shape * size + 0.5 * _PRIOR) / (size + _PRIOR)


def _zhang_stephens(tail: Floats) -> float:
    """Shape of the generalised Pareto distribution of exceedances (M,) in increasing order."""
    count = len(tail)
    grid = 30 + int(math.sqrt(count))
    quartile = max(tail[int(count / 4 + 0.5) - 1], 1e-12 * tail[-1])
    theta = 1 / tail[-1] + (1 - np.sqrt(grid / (np.arange(grid) + 0.5))) / (3 * quartile)
    shapes = np.mean(np.log1p(-theta[:, None] * tail), axis=1)
    likelihood = count * (np.log(-theta / shapes) - shapes - 1)
    weights = np.exp(likelihood - likelihood.max())
    best = float(np.sum(theta * weights) / weights.sum())
    return float(np.mean(np.log1p(-best * tail)))
