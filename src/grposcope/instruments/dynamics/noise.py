"""Sampling noise in the oscillator: stationary covariance, autocovariance and spectrum.

Derivation of this project; no publication.

At every refresh the force carries one draw of noise with variance q, held for the N
steps of the cycle. It enters the cycle map M as B = [η(N − S₁)/(1 − β), (1 − β^N)/(1 − β)], so that

    Σ = M Σ Mᵀ + q B Bᵀ      (discrete Lyapunov),      N = 1:  Var x = η²q(1 + β) / ((1 − β) ηκ (2(1 + β) − ηκ)).

With P prompts and G rollouts each, q = σ²/(P·G): the covariance falls as 1/G, a temperature, while the
deterministic part does not know G. Times are refreshes. An unstable map has no stationary state: the
variance is ∞ and covariances are NaN.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_discrete_lyapunov

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import refresh


def _input_vector(lr: float, momentum: float, interval: int) -> NDArray[np.float64]:
    """B: how unit noise of the held force moves (x, v) over one cycle, (2,)."""
    power = momentum**interval
    share = (1 - power) / (1 - momentum)
    return np.array([lr * (interval - momentum * share) / (1 - momentum), share])


def _stationary_covariance(
    lr: float, momentum: float, curvature: float, interval: int, noise_variance: float
) -> NDArray[np.float64]:
    """Covariance of (x, v) at the refreshes, (2, 2); NaN where the map is unstable."""
    if not noise_variance >= 0:
        raise UserError(f"noise variance {noise_variance:g} must be at least 0")
    one_cycle = refresh.cycle_map(lr, momentum, curvature, interval)
    if not float(refresh.spectral_radius(lr, momentum, curvature, interval)) < 1:
        return np.full((2, 2), math.nan)
    first = _input_vector(lr, momentum, interval)
    return np.asarray(solve_discrete_lyapunov(one_cycle, noise_variance * np.outer(first, first), method="direct"))


def stationary_variance(lr: float, momentum: float, curvature: float, interval: int, noise_variance: float) -> float:
    """Variance of the displacement x at the refreshes; ∞ where the map is unstable."""
    variance = float(_stationary_covariance(lr, momentum, curvature, interval, noise_variance)[0, 0])
    return math.inf if math.isnan(variance) else variance


def autocovariance(
    lr: float, momentum: float, curvature: float, interval: int, noise_variance: float, lags: int
) -> NDArray[np.float64]:
    """Cov(x_0, x_l) at refreshes l = 0 … lags, (lags + 1,)."""
    state = _stationary_covariance(lr, momentum, curvature, interval, noise_variance)[:, 0]
    one_cycle = refresh.cycle_map(lr, momentum, curvature, interval)
    values = []
    for _ in range(lags + 1):
        values.append(state[0])
        state = one_cycle @ state
    return np.array(values)


def power_spectrum(
    frequencies: ArrayLike, lr: float, momentum: float, curvature: float, interval: int, noise_variance: float
) -> NDArray[np.float64]:
    """Two-sided spectrum of x over cycles per refresh, q |e₁ᵀ(e^{2πif} − M)⁻¹B|²; over (−½, ½) it adds to Var x."""
    turns = np.exp(2j * math.pi * np.asarray(frequencies, dtype=np.float64))
    one_cycle = refresh.cycle_map(lr, momentum, curvature, interval)
    if not float(refresh.spectral_radius(lr, momentum, curvature, interval)) < 1:
        return np.full(turns.shape, math.nan)
    (a, b), (c, d) = one_cycle
    first = _input_vector(lr, momentum, interval)
    determinant = (turns - a) * (turns - d) - b * c
    return noise_variance * np.abs(((turns - d) * first[0] + b * first[1]) / determinant) ** 2
