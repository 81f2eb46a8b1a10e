"""A placebo: another source's credit, permuted among the tokens of each rollout.

It has the same values, sum and size per rollout, on other tokens. What a source gains over outcome credit and its
placebo gains as well, is owed to its scale, not to where it puts the credit. The permutation is drawn from a generator
that the rollouts seed, so the same batch gets the same placebo.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def permuted(
    credit: Float[Tensor, "B T"], tokens: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """The credit of each rollout's tokens in a random order, which the batch's tokens seed; 0 where masked."""
    generator = torch.Generator().manual_seed(int(tokens.sum() + mask.sum()))
    draw = torch.rand(mask.shape, generator=generator).to(mask.device)
    order = draw.masked_fill(~mask, 2.0).argsort(-1)  # the rollout's tokens in random order, then the masked ones
    places = torch.arange(mask.shape[-1], device=mask.device).expand_as(mask)
    own = torch.where(mask, places, mask.shape[-1]).sort(-1).values  # the rollout's tokens in their order
    shuffled = torch.zeros_like(credit)
    rows = torch.arange(len(mask), device=mask.device)[:, None].expand_as(mask)
    inside = own < mask.shape[-1]
    shuffled[rows[inside], own[inside]] = credit[rows[inside], order[inside]]
    return shuffled
