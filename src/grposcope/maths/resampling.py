"""Jackknife and bootstrap over prompts: standard errors and intervals. Every resample is a vector of prompt weights.

A pooled statistic is a function of such weights, so the estimate (all ones), the jackknife (one prompt left
out) and the bootstrap (how often each prompt was drawn) are three calls of one vectorised function.
Pairs of different prompts are averaged with weights w_p w_q, p ≠ q: two copies of one prompt in a
bootstrap draw are no pair, so the draws are centred on the estimate. Where the average over pairs is mere
noise (E g = 0), this spread, like that of the jackknife, is too wide rather than too narrow.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate

FEW = 10
"""Prompts below which an interval is marked as rough."""


def point(prompts: int) -> NDArray:
    """Weights of the estimate itself, every prompt once, (1, P)."""
    return np.ones((1, prompts))


def jackknife(prompts: int) -> NDArray:
    """Weights that leave out each prompt in turn, (P, P)."""
    return np.ones((prompts, prompts)) - np.eye(prompts)


def bootstrap(prompts: int, replicates: int, seed: int = 0) -> NDArray:
    """Weights of draws of P prompts with replacement: how often each prompt occurs, (replicates, P)."""
    return np.random.default_rng(seed).multinomial(prompts, np.full(prompts, 1 / prompts), replicates).astype(float)


def mean(values: NDArray, weights: NDArray) -> NDArray:
    """Weighted means of values (P,) for weights (k, P): (k,). NaN where no weight is left."""
    total = weights.sum(-1)
    return np.divide(weights @ values, total, out=np.full(len(weights), np.nan), where=total > 0)


def means_left_out(values: NDArray) -> NDArray:
    """Means of values (P,) without each of them, (P,); NaN for a single value."""
    n = len(values)
    return (values.sum() - values) / (n - 1) if n > 1 else np.full(n, np.nan)


def pair_mean(products: NDArray, weights: NDArray, usable: NDArray | None = None) -> NDArray:
    """Weighted means over ordered pairs p ≠ q of products (P, P), for weights (k, P): (k,). NaN without a pair.

    known (P, P): the pairs that are averaged; by default all whose product is not NaN.
    """
    pairs = ~np.eye(len(products), dtype=bool) & ~np.isnan(products)
    if usable is not None:
        pairs &= usable
    total = ((weights @ pairs) * weights).sum(-1)
    sums = ((weights @ np.where(pairs, products, 0.0)) * weights).sum(-1)
    return np.divide(sums, total, out=np.full(len(weights), np.nan), where=total > 0)


def pair_means_left_out(products: NDArray, usable: NDArray | None = None) -> NDArray:
    """`pair_mean` of products (P, P) without each prompt, (P,), in the time of one; NaN where no pair is left."""
    pairs = ~np.eye(len(products), dtype=bool)
    if usable is not None:
        pairs &= usable
    of_pairs = np.where(pairs, products, 0.0)
    total, sums = (a.sum() - a.sum(0) - a.sum(1) for a in (pairs.astype(float), of_pairs))
    return np.divide(sums, total, out=np.full(len(products), np.nan), where=total > 0)


def standard_error(left_out: NDArray, times: NDArray | None = None) -> float:
    """Jackknife standard error √((n−1)/n Σ (x_i − x̄)²) from the n values of a statistic without each unit.

    times: how many units share each value of `left_out`; by default one.
    """
    if times is None:
        times = np.ones(len(left_out))
    n = float(times.sum())
    centre = float(times @ left_out) / n
    with np.errstate(over="ignore"):  # an error that no float holds is infinite
        return math.sqrt((n - 1) / n * float(times @ (left_out - centre) ** 2))


def estimate(value: float, left_out: NDArray, flag: str = "") -> Estimate:
    """A value with its jackknife standard error; left_out (P,) are the values without each prompt.

    The flag marks fewer than FEW prompts unless another one is given.
    """
    n = len(left_out)
    if not np.isfinite(left_out).all() or n < 2:
        return Estimate(float(value), math.nan, n, flag or "too few prompts: no standard error")
    return Estimate(
        float(value), standard_error(left_out), n, flag or (f"{n} prompts: rough standard error" if n < FEW else "")
    )


def interval(replicates: NDArray, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of bootstrap replicates (R,), which may be infinite; NaN if over a tenth of them is NaN."""
    finite = replicates[~np.isnan(replicates)]
    if len(finite) < 0.9 * len(replicates) or not len(finite):
        return math.nan, math.nan
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return float(low), float(high)
