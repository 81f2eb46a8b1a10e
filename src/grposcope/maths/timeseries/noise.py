"""Noise of a logged metric: an AR(1) wandering plus white measurement noise, integrated over.

Method of this project; no publication.

Cov(u_t, u_{t+k}) = σ² (s φ^k + (1 − s) 1{k = 0}), φ in [0, 0.99], s in [0, 1]. The orthonormal cosine
transform (DCT-II) nearly diagonalises it, and the variance of coefficient j under φ^|k| is exactly

    v_j = 1 + (2/n) Σ_{k≥1} φ^k [(n − k) cos(jπk/n) − sin(jπk/n)/sin(jπ/n)]      (j > 0)

so a regression with any (φ, s) is one with weights 1/d_j, d_j = s v_j + 1 − s. Both sums are geometric: all v_j cost
O(n). Nobody knows (φ, s): every answer is an average over a grid, weighted by the residual (REML) likelihood, with a
flat prior. A test that plugs in one estimate of φ instead rejects too often as φ → 1, and one that assumes a pure AR(1)
does so when white noise hides the wandering.

Times are rows, not steps. A residual of 0 (a constant or exactly fitted series) has standard error 0, and its tests are
decided by the sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.special import fdtrc, logsumexp, stdtr

Array = NDArray[np.float64]

PHI = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99)
SHARES = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)

COARSE_PHI = (0.3, 0.6, 0.8, 0.9, 0.96)
COARSE_SHARES = (0.3, 0.7, 1.0)

_AVERAGES, _COARSE_AVERAGES = (0.45, 0.65, 0.78, 0.88, 0.94, 0.975), (0.75, 0.93)
"""Weights that an exponential average gives to what it was; none is a φ of the grid."""

EXACT = 1e-12
"""A residual sum of squares below this share of Σ y² is a perfect fit."""

SMOOTHED = 60
"""Rows below which it is not asked whether they were averaged: a correlation is known to 0.13 then."""

WANDERED, CALM = 20, 0.8
"""Rows below which it is not asked how far neighbours go together, and the largest φ that is allowed for."""

_JUMP = 3.5
"""Robust standard deviations from their median beyond which the difference of neighbours is a jump."""

NO_WHITE, _NO_NOISE = -0.2, 0.3
"""Lag-one correlation of differences above which rows have no noise of their own, and above which they have none."""

_OF_A_MEAN = 0.35
"""Negative correlation of differences at the length of a running mean, which is 1/2 but for chance."""


@lru_cache(maxsize=16)
def cosine_variances(
    n: int, coarse: bool = False, phi: tuple[float, ...] = (), shares: tuple[float, ...] = (), averaged: bool = False
) -> tuple[Array, Array]:
    """Variances (M, n) of the cosine coefficients of the M noises of the grid, and their (φ, s), (M, 2); white first.

    phi, shares: the grid, by default PHI and SHARES, or the coarse ones. averaged: last the exponential averages of
    AR(1) noise as well, which have no white noise and fall more steeply; s is infinite for these.
    """
    angle = np.pi * np.arange(n) / n
    sign = np.where(np.arange(n) % 2, -1.0, 1.0)
    rows, names = [np.ones(n)], [(0.0, 0.0)]
    for one in phi or (COARSE_PHI if coarse else PHI):
        z = one * np.exp(1j * angle)
        last = one**n * sign  # zⁿ
        wandering = 1 + 2 / n * (n * z / (1 - z) - z * (1 - last) / (1 - z) ** 2).real
        wandering[1:] -= 2 / n * ((z - last) / (1 - z)).imag[1:] / np.sin(angle[1:])
        for share in shares or (COARSE_SHARES if coarse else SHARES):
            rows.append(share * wandering + 1 - share)
            names.append((one, share))
    if averaged:
        grid, averages = (COARSE_PHI, _COARSE_AVERAGES) if coarse else (PHI, _AVERAGES)
        of_phi, of_average = (cosine_variances(n, phi=each, shares=(1.0,))[0][1:] for each in (grid, averages))
        for (one, pure), (other, average) in product(
            zip(grid, of_phi, strict=True), zip(averages, of_average, strict=True)
        ):
            share = one * (1 - other**2) / ((one - other) * (1 + one * other))  # of an AR(2) with these roots
            rows.append(share * pure + (1 - share) * average)
            names.append((one, math.inf))
    return np.array(rows), np.array(names)


@dataclass(frozen=True)
class Contrast:
    """Test of a linear function of the mean curve (a contrast) against 0.

    value, se: posterior mean and standard deviation. p_up: p-value of "it is ≤ 0" (small: it is
    positive); p_down: of "it is ≥ 0".
    """

    value: float
    se: float
    p_up: float
    p_down: float


@dataclass(frozen=True)
class Regression:
    """Regression coefficients of a design under every noise of the grid.

    weight (M,): posterior of the noises; coefficients (M, K), covariance (M, K, K); df (M,): degrees of freedom.
    """

    weight: Array
    coefficients: Array
    covariance: Array
    df: Array

    def under(self, noise: int) -> Regression:
        """The regression under one noise alone; 0 is white noise of unknown variance, the first of the grid."""
        one = slice(noise, noise + 1)
        return Regression(np.ones(1), self.coefficients[one], self.covariance[one], self.df[one])

    def test(self, combination: Array, minus: float = 0.0) -> Contrast:
        """Test `combination` (K,) of the coefficients less a constant, p-values averaged over the noises."""
        values = self.coefficients @ combination - minus
        errors = np.sqrt(np.maximum(np.einsum("i,gij,j->g", combination, self.covariance, combination), 0.0))
        value = float(self.weight @ values)
        if not errors.any():  # exact: decided by the sign, rounding aside
            value = 0.0 if abs(value) <= EXACT**0.5 * np.abs(self.coefficients).max() else value
            return Contrast(value, 0.0, 0.0 if value > 0 else 1.0, 0.0 if value < 0 else 1.0)
        spread = 1 / np.maximum(1 - 2 / self.df, 1e-300)
        se = float(np.sqrt(self.weight @ (errors**2 * spread + (values - value) ** 2)))
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(errors > 0, values / errors, np.sign(values) * np.inf)
        t = np.where(np.isnan(t), 0.0, t)
        up, down = (min(float(self.weight @ stdtr(self.df, side * t)), 1.0) for side in (-1.0, 1.0))
        return Contrast(value, se, up, down)


class Design:
    """A design X (n, K) prepared for every noise, so that `regress` is cheap.

    The noises are given by the variances (M, n) of their cosine coefficients; by default they are those of the grid.
    """

    def __init__(self, x: Array, coarse: bool = False, variances: Array | None = None):
        n, width = x.shape
        variances = cosine_variances(n, coarse)[0] if variances is None else variances
        self.x = x
        self.z = dct(x, axis=0, norm="ortho")
        self.weights = 1 / variances
        products = (self.z[:, :, None] * self.z[:, None, :]).reshape(n, -1)
        gram = (self.weights @ products).reshape(-1, width, width)
        self.inverse = np.linalg.inv(gram)
        self.base = -0.5 * np.log(variances).sum(1) - 0.5 * np.linalg.slogdet(gram)[1]
        self.df = n - width

    def solve(self, z: Array) -> tuple[Array, Array]:
        """Coefficients (M, K) and weighted residual sum of squares (M,) for cosine coefficients z (n,) of a series."""
        b = np.einsum("gij,gj->gi", self.inverse, self.weights @ (self.z * z[:, None]))
        return b, (self.weights * (z - b @ self.z.T) ** 2).sum(1)

    def squares(self, z: Array) -> Array:
        """The sums of squares (M,) of `solve`, faster for many noises; an exact fit loses them to rounding."""
        fitted = self.weights @ (z[:, None] * self.z)
        return np.asarray(self.weights @ z**2 - ((self.inverse @ fitted[:, :, None])[:, :, 0] * fitted).sum(1))

    def log_likelihood(self, squares: Array) -> Array:
        """Residual (REML) log-likelihood (M,) up to a constant, from weighted residual sums of squares (M,)."""
        return np.asarray(self.base - 0.5 * self.df * np.log(squares))

    def regress(self, y: Array) -> Regression:
        """Fit y (n,); exact fits have covariance 0 and equal weights."""
        z = dct(y, norm="ortho")
        b, squares = self.solve(z)
        if (squares <= EXACT * (self.weights * z**2).sum(1)).any():
            squares = np.zeros(len(b))
            weight = np.full(len(b), 1 / len(b))
        else:
            weight = posterior(self.log_likelihood(squares))
        covariance = self.inverse * (squares / self.df)[:, None, None]
        return Regression(weight, b, covariance, np.full(len(b), float(self.df)))


def posterior(log_likelihood: Array) -> Array:
    """Weights that sum to 1 along the first axis."""
    weight = np.exp(log_likelihood - log_likelihood.max(0))
    return np.asarray(weight / weight.sum(0))


def residual_variances(columns: Array, residual: Array) -> Array:
    """Variances (n,) of the cosine coefficients of the noise that the residual (n,) of a fit of columns (n, K) shows.

    They are averaged over the noises of the coarse grid.
    """
    design = Design(columns, coarse=True)
    squares = np.maximum(design.solve(dct(residual, norm="ortho"))[1], 1e-300)
    weight = posterior(design.log_likelihood(squares))
    return np.asarray((weight * squares / design.df) @ (1 / design.weights))


def harmonic_mean(p: Sequence[float]) -> float:
    """The harmonic mean of p-values: a p-value of "none of them has anything", whatever their dependence.

    For tests that mostly see the same thing it costs less than the least of them times their number. It holds within a
    factor of 1.2 at 5 %, and better below (Wilson 2019, doi:10.1073/pnas.1814092116).
    """
    return 0.0 if min(p) == 0 else len(p) / sum(1 / one for one in p)


def difference_variance(y: Array) -> float:
    """Half the mean squared difference of neighbours: the variance that rows do not share (von Neumann 1941).

    It needs no model and is blind to trends. Of AR(1) plus white noise it holds the white part and 1 − φ of the rest.
    NaN for a single value.
    """
    if len(y) < 2:
        return math.nan
    return 0.5 * float(np.square(np.diff(y)).sum()) / (len(y) - 1)  # a dot product would wake all BLAS threads


def smoothing(y: Array) -> float:
    """φ of an exponential average that y (n,) may be, where its rows have no noise of their own; else 0.

    The differences of AR(1) noise have the lag-one correlation −(1 − φ)/2, white noise beside it brings that to −1/2,
    and a curve without noise to 1. A trend moves it little. Half a standard error
    of the correlation, 1/√n, is added to it: few rows show it badly. A jump, which no average has, counts as a large
    difference and not as nearly all that there is. 0 for fewer than SMOOTHED rows.
    """
    if len(y) < SMOOTHED:
        return 0.0
    lag = lag_of_differences(y)
    return min(1 + 2 * lag + 1 / math.sqrt(len(y)), 0.98) if NO_WHITE < lag < _NO_NOISE else 0.0


def wandering(y: Array) -> float:
    """φ of AR(1) noise by the differences of y (n,), from 0 to CALM: at least that, where there is white noise too.

    0 for fewer than WANDERED rows, and for a curve without noise.
    """
    if len(y) < WANDERED:
        return 0.0
    lag = lag_of_differences(y)
    return min(max(1 + 2 * lag, 0.0), CALM) if lag < _NO_NOISE else 0.0


def lag_of_differences(y: Array) -> float:
    """Lag-one correlation of the differences of y (n,), of which large ones are cut; 1 for a constant."""
    steps = _without_jumps(np.diff(y))
    power = float(np.square(steps).sum())
    return float((steps[1:] * steps[:-1]).sum()) / power if power > 0 else 1.0


def _without_jumps(steps: Array) -> Array:
    """Differences (n,) less their mean, of which those beyond _JUMP robust spreads are cut."""
    if (spread := robust_spread(steps)) > 0:
        middle = float(np.median(steps))
        steps = np.clip(steps, middle - _JUMP * spread, middle + _JUMP * spread)
    return np.asarray(steps - steps.mean())


def running_mean(y: Array) -> int:
    """Rows w, 3 or more, of the running mean that y (n,) may be; 1 where it is none, or of fewer than 2 SMOOTHED rows.

    The differences of a mean of the last w rows are a new row less one that is w rows old: their correlation is −1/2 at
    the lag w and that of unrelated rows at the lags beside it, while those of a swing are all alike there.
    """
    n = len(y)
    if n < 2 * SMOOTHED or robust_spread(np.diff(y)) == 0:
        return 1
    steps = _without_jumps(np.diff(y))
    lags = np.fft.irfft(np.square(np.abs(np.fft.rfft(steps, 2 * n))))[: 2 * (n // 3) + 1]
    w = 3 + int(np.argmin(lags[3 : n // 3]))
    beside = np.abs(lags[[1, w - 1, w + 1, 2 * w]])
    return w if lags[w] < -_OF_A_MEAN * lags[0] and beside.max() < -lags[w] / 2 else 1


def widening(phi: float) -> float:
    """Variance of a mean of many rows over `difference_variance` per row, where they are an exponential average with
    this φ; 1 for φ = 0."""
    return (1 + phi) / (1 - phi) ** 2


def robust_spread(values: Array) -> float:
    """Standard deviation estimated from the median absolute deviation; exact for a normal distribution."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


# F tests of many candidate columns


@dataclass(frozen=True)
class Candidates:
    """Candidate columns, whitened under every noise, orthogonal to the design and orthonormal.

    basis (M, C, R, n); size (M, C): log|Gram| of the columns of a candidate; within: whitened and orthonormal
    design (n, K) for each noise.
    """

    basis: Array
    size: Array
    within: tuple[Array, ...]


def prepare(design: Design, candidates: Array) -> Candidates:
    """Prepare candidates (C, R, n), C alternatives of R columns each, for `scan`."""
    c, r, n = candidates.shape
    z = dct(candidates, axis=-1, norm="ortho")
    bases, sizes, within = [], [], []
    for weights in design.weights:
        root = np.sqrt(weights)
        basis, _ = np.linalg.qr(design.z * root[:, None])
        white = (z * root).reshape(c * r, n)
        white = (white - (white @ basis) @ basis.T).reshape(c, r, n)
        gram = white @ white.transpose(0, 2, 1)
        lower = np.linalg.cholesky(gram + 1e-12 * np.trace(gram, axis1=1, axis2=2)[:, None, None] * np.eye(r))
        bases.append(np.linalg.inv(lower) @ white)
        sizes.append(2 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1))
        within.append(basis)
    return Candidates(np.array(bases), np.array(sizes), tuple(within))


def scan(design: Design, columns: Candidates, y: Array) -> tuple[Array, Array]:
    """F tests and posterior of C candidates; the noise is judged from what a candidate leaves.

    p-values (C,), averaged over noises; and the probability (C,) of each, all being equally likely beforehand.
    """
    z = dct(y, norm="ortho")
    white = z * np.sqrt(design.weights)
    white = np.array([row - basis @ (basis.T @ row) for row, basis in zip(white, columns.within, strict=True)])
    total = (white**2).sum(1)[:, None]
    gains = np.einsum("gcrn,gn->gcr", columns.basis, white, optimize=True)
    explained = np.minimum((gains**2).sum(2), total)
    r = columns.basis.shape[2]
    df = design.df - r
    if (total <= 1e-12 * (z**2).sum()).any():
        flat = np.full(explained.shape[1], 1.0)
        return flat, flat / len(flat)
    left = np.maximum(total - explained, 1e-12 * total)
    evidence = design.base[:, None] - 0.5 * columns.size - 0.5 * df * np.log(left)
    p = (posterior(evidence) * fdtrc(r, df, (explained / r) / (left / df))).sum(0)
    return p, posterior(logsumexp(evidence, axis=0))
