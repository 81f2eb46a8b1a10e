"""Reductions: the coefficient c (B, T) that each token's term has in the loss, L = Σ c ℓ.

The choice decides how long and short completions weigh against each other. Coefficients are 0
where masked, in float64 like the rewards; an objective casts them to the log-probabilities' type. Rows
with an empty mask contribute nothing and still count in the mean over rollouts.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor


def lengths(mask: Bool[Tensor, "B T"]) -> Int[Tensor, " B"]:
    """Tokens per rollout, at least 1 so that it can divide."""
    return mask.sum(-1).clamp(min=1)


def sequence_mean(mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Mean over the tokens of each rollout, then over rollouts (GRPO, GSPO): a long answer's tokens weigh less."""
    return mask.double() / lengths(mask)[:, None] / len(mask)


def token_mean(mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Mean over all tokens of the batch (DAPO, BNPO, CISPO): each token weighs the same."""
    return mask.double() / mask.sum().clamp(min=1)


def constant_length(mask: Bool[Tensor, "B T"], length: int | None = None) -> Float[Tensor, "B T"]:
    """Sum over tokens divided by a fixed `length`, mean over rollouts (Dr. GRPO): no length bias.

    `length` is the longest completion allowed, so that the scale does not depend on what was sampled;
    without it the width T stands in.
    """
    return mask.double() / ((length or mask.shape[-1]) * len(mask))


def sequence_sum(mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Sum over tokens, mean over rollouts: the plain policy gradient (1/B) Σ A_i s_i."""
    return mask.double() / len(mask)
