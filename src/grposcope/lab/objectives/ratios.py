"""Importance ratios between the policy being trained and the one that drew the rollouts.

Each maps log-probabilities (B, T) to ratios (B, T), whose gradient is that of the objective. Masked
positions are ignored by everything downstream.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.lab.objectives.reductions import lengths


def token(
    logp: Float[Tensor, "B T"], logp_old: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """ρ_t = π(y_t)/π_old(y_t), a ratio per token (PPO, GRPO)."""
    return (logp - logp_old).exp()


def sequence(
    logp: Float[Tensor, "B T"], logp_old: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """ρ = (π(y)/π_old(y))^{1/|y|}, one ratio per rollout (GSPO, arXiv:2507.18071), in its token form.

    The value is the same at every token of a row; the gradient reaches each token through its own
    log π, which for constant rows of credit is exactly the gradient of the sequence ratio.
    """
    mean = (logp - logp_old).where(mask, 0.0).sum(-1, keepdim=True) / lengths(mask)[:, None]
    return (mean.detach() + logp - logp.detach()).exp()


def none(logp: Float[Tensor, "B T"], logp_old: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """ρ = 1 with the gradient of log π: no correction for old rollouts, the frozen force of the dynamics."""
    return (logp - logp.detach()).exp()
