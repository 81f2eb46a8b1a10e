"""Limit law of stochastic gradient ascent near its optimum: the distribution of its suboptimality gap.

For steps η/n near θ*, with Hessian H (of the loss, positive definite) and gradient noise C = Cov(ĝ),
√n (θ_n − θ*) → N(0, S) where (ηH − ½I) S + S (ηH − ½I) = η² C, if η λ_min(H) > ½. The suboptimality gap then
has n · gap → ½ Σ λ_i χ²₁ with λ the eigenvalues of H^{1/2} S H^{1/2} (arXiv:2603.01162, Theorem 8; the
classical law of stochastic approximation). For P prompts of G rollouts C = (1/P)[V_p + Σ₁/G + Δ/(G(G−1))]
as matrices (`noise`).

Probabilities of Σ λ_i χ²₁ come from its Laplace transform M(s) = Π (1 + 2λ_i s)^{−1/2}, inverted by the trapezoidal
rule along a hyperbola that opens to the left (the contour of Weideman and Trefethen, Mathematics of Computation 76,
2007), put through the saddle point of e^{sx} M(s)/s and scaled by its width. All singularities lie on the real
axis at s ≤ 0, so convergence is geometric, whatever the weights: absolute error below 1e-11.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh, solve_continuous_lyapunov, sqrtm
from scipy.optimize import brentq

from grposcope.core.errors import UserError

_ANGLE, _STEP, _END = 0.4, 0.1, 12.0  # opening of the hyperbola, step along it, and its end


def noise(
    prompt_covariance: NDArray, oracle_covariance: NDArray, residual: NDArray, prompts: int, group: int
) -> NDArray:
    """Gradient noise C = (1/P)[Cov_x g + Σ₁/G + Δ/(G(G−1))], all (D, D).

    prompt_covariance: Cov_x g. oracle_covariance: Σ₁. residual: Δ = Var(r) F + g gᵀ averaged over prompts.
    """
    if group < 2 or prompts < 1:
        raise UserError(f"{prompts} prompts of {group} rollouts: use at least 1 prompt and 2 rollouts")
    return (prompt_covariance + oracle_covariance / group + residual / (group * (group - 1))) / prompts


def covariance(hessian: NDArray, noise: NDArray, step: float) -> NDArray:
    """Covariance S (D, D) of the limit √n (θ_n − θ*) → N(0, S) for steps `step`/n.

    Raises UserError where step · λ_min(H) ≤ ½, so that no √n law holds.
    """
    hessian = np.asarray(hessian, float)
    least = float(eigh(hessian, eigvals_only=True)[0])
    if step * least <= 0.5:
        raise UserError(
            f"step × least curvature = {step * least:.3g} must exceed 1/2 for a limit law; "
            f"use a step above {0.5 / least:.3g}"
            if least > 0
            else "the Hessian is not positive definite: no optimum"
        )
    drift = step * hessian - np.eye(len(hessian)) / 2
    return solve_continuous_lyapunov(drift, step**2 * np.asarray(noise, float))


def weights(hessian: NDArray, limit_covariance: NDArray) -> NDArray:
    """Weights λ = eig(H^{1/2} S H^{1/2}) of the limit n · gap → ½ Σ λ_i χ²₁, decreasing, (D,)."""
    root = np.real(sqrtm(np.asarray(hessian, float)))
    return np.maximum(eigh(root @ limit_covariance @ root, eigvals_only=True)[::-1], 0.0)


def cdf(x: ArrayLike, weights: ArrayLike) -> NDArray:
    """Probability P(Σ λ_i χ²₁ ≤ x) at each x, for weights λ_i ≥ 0 (D,)."""
    scales = _scales(weights)
    at = np.asarray(x, float)
    out = np.zeros(at.shape)
    out[at > 0] = _inverted(at[at > 0], scales)
    return out


def quantile(probability: float, weights: ArrayLike) -> float:
    """Quantile x of a weighted χ²: P(Σ λ_i χ²₁ ≤ x) = probability."""
    if not 0 < probability < 1:
        raise UserError(f"a probability of {probability:g} must lie between 0 and 1")
    scales = _scales(weights)
    low, high = 1e-12 * scales.sum(), scales.sum()
    while float(cdf(high, scales)) < probability:
        high *= 2
    while float(cdf(low, scales)) > probability:
        low /= 1e3
    return float(brentq(lambda x: float(cdf(x, scales)) - probability, low, high, xtol=1e-300, rtol=1e-12))


def _inverted(x: NDArray, scales: NDArray) -> NDArray:
    """The inverse transform (1/2πi) ∫ e^{sx} M(s)/s ds for x > 0, (k,).

    The half of the contour below the real axis contributes the conjugate of the half above.
    """
    saddle = _saddle(x, scales)
    bend = sum(2 * (scale / (1 + 2 * scale * saddle)) ** 2 for scale in scales) + 1 / saddle**2
    width = 1 / np.sqrt(bend)
    u = np.arange(0.0, _END, _STEP)
    curve = np.sin(_ANGLE) * (1 - np.cosh(u)) + 1j * np.cos(_ANGLE) * np.sinh(u)
    slope = -np.sin(_ANGLE) * np.sinh(u) + 1j * np.cos(_ANGLE) * np.cosh(u)
    s = saddle[:, None] + width[:, None] * curve
    logs = s * x[:, None] - np.log(s) - sum(np.log1p(2 * scale * s) for scale in scales) / 2
    terms = (np.exp(logs) * slope).imag * np.where(u == 0, 0.5, 1.0)
    return np.clip(terms.sum(-1) * width * _STEP / np.pi, 0.0, 1.0)


def _saddle(x: NDArray, scales: NDArray) -> NDArray:
    """The saddle point s > 0 that minimises s x − ½ Σ log(1 + 2λs) − log s, (k,); s x lies in [1, 1 + D/2]."""
    low, high = np.ones(len(x)), np.full(len(x), 1 + len(scales) / 2)
    for _ in range(40):
        middle = (low + high) / 2
        products = scales * (middle / x)[:, None]
        beyond = middle > 1 + (products / (1 + 2 * products)).sum(-1)
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return low / x


def _scales(weights: ArrayLike) -> NDArray:
    """The weights that are not 0; UserError unless they are ≥ 0 and not all 0."""
    scales = np.asarray(weights, float)
    if scales.ndim != 1 or not (scales >= 0).all() or not scales.any():
        raise UserError("the weights of a weighted χ² must be at least 0 and not all 0")
    return scales[scales > 0]
