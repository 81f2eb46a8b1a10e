"""Estimates of KL(π ‖ π_ref) per token from the sampled token alone (J. Schulman, 2020).

With q = log π_ref − log π at the sampled token. As *values* under on-policy sampling k1 and k3 are
unbiased and k2 is not. As *losses* to differentiate it is the other way round: the expected gradient
of k2 is that of KL(π ‖ π_ref), that of k1 is zero, and that of k3 is that of KL(π_ref ‖ π).
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def k1(logp: Float[Tensor, "B T"], logp_ref: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """−q. Unbiased, high variance, can be negative."""
    return logp - logp_ref


def k2(logp: Float[Tensor, "B T"], logp_ref: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """q²/2. Low variance, biased to second order; its expected gradient is that of the KL."""
    return (logp - logp_ref).square() / 2


def k3(logp: Float[Tensor, "B T"], logp_ref: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """e^q − 1 − q ≥ 0. Unbiased and of low variance; the one of GRPO (arXiv:2402.03300)."""
    q = logp_ref - logp
    return q.exp() - 1 - q


def forward(logp: Float[Tensor, "B T"], logp_ref: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """q, the estimate of KL(π_ref ‖ π) on tokens that π_ref drew; its gradient is −∇log π: it imitates them."""
    return logp_ref - logp


ALL = {"k1": k1, "k2": k2, "k3": k3}
"""Name of a setting -> estimator of the KL to the reference."""
