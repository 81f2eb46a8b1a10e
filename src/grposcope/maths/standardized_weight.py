"""What division by the group's standard deviation makes of a prompt's gradient, for rewards of two values.

With K successes of G and the deviation σ_K = √(K/G (1 − K/G)) (ddof 0, no ε; ddof 1 multiplies by √((G−1)/G)) the
expectation of the standardized gradient of a prompt that is solved with probability p is w_G(p) ∇p, K ~ Bin(G, p):

    w_G(p) = E σ_K / (p(1 − p)) = Σ_{K=1}^{G−1} √(K(G−K))/G · C(G,K) p^{K−1} (1−p)^{G−K−1}

So the objective that it climbs is E ψ_G(p) with ψ_G′ = w_G, and

    ψ_G(p) = ∫₀ᵖ w_G = Σ_{K=1}^{G−1} I_p(K, G−K) / √(K(G−K))          I the regularized incomplete beta function

w_G is constant for G = 2 and 3, where σ_K is the same in every live group: the division changes the scale and nothing
else. w_G(0) = √(G−1). As G → ∞, w_G(p) → 1/√(p(1−p)) and ψ_G → 2 arcsin √p, which is what Proposition 13 of
arXiv:2603.01162 states; at a fixed G it does not hold. Method of this project, no publication.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grposcope.core.errors import UserError
from grposcope.maths.dead_groups import log_choose

_LARGEST = 1_000_000
"""Rollouts of a group whose weights fit into memory."""

SCALE_ALONE = 3
"""Group size up to which every live group of two-valued rewards has one deviation."""


def weight(success: ArrayLike, group: int) -> NDArray[np.float64]:
    """w_G(p), the factor on the gradient of each prompt, for success probabilities of any shape in [0, 1]."""
    p, k, root = _arguments(success, group)
    ways = log_choose(group, np.arange(1, group))
    return np.asarray((root / group * np.exp(ways + _log_power(p, k - 1) + _log_power(1 - p, group - k - 1))).sum(-1))


def relative(success: ArrayLike, group: int) -> NDArray[np.float64]:
    """w_G(p)/w_G(½): how many times as much a prompt counts as one that is solved half of the time."""
    return np.asarray(weight(success, group) / weight(0.5, group))


def _objective(success: ArrayLike, group: int) -> NDArray[np.float64]:
    """ψ_G(p), what standardized advantages climb on each prompt; 0 at p = 0."""
    from scipy.special import betainc  # takes longer to load than everything else here

    p, k, root = _arguments(success, group)
    return np.asarray((betainc(k, group - k, p) / root).sum(-1))


def limit(success: float) -> float:
    """`relative` as G → ∞, ½/√(p(1−p)): that of arcsin. ∞ at 0 and 1."""
    spread = success * (1 - success)
    return 0.5 / math.sqrt(spread) if spread > 0 else math.inf


def _log_power(base: NDArray[np.float64], exponent: NDArray[np.float64]) -> NDArray[np.float64]:
    """exponent · log base, 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(exponent == 0, 0.0, exponent * np.log(base))


def _arguments(success: ArrayLike, group: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """p (..., 1), the numbers of successes K of live groups, and √(K(G−K))."""
    p = np.asarray(success, np.float64)[..., None]
    if group < 2:
        raise UserError(f"a group of {group} has no standard deviation; use 2 rollouts per prompt or more")
    if group > _LARGEST:
        raise UserError(f"a group of {group:,} rollouts is more than is computed; correct the size of the groups")
    if not ((p >= 0) & (p <= 1)).all():
        raise UserError("a success probability must lie between 0 and 1")
    k = np.arange(1.0, group)
    return p, k, np.sqrt(k * (group - k))
