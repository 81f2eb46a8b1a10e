"""Values of places that several rollouts of a group pass, which the sources that merge rollouts share."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grposcope.core.errors import UserError


def merged(
    before: Int[Tensor, "B T"],
    after: Int[Tensor, "B T"],
    reached: Bool[Tensor, "B T"],
    rewards: Float[Tensor, "P G"],
) -> Float[Tensor, "B T"]:
    """Mean reward of the rollouts that pass the place after a token, less that of the others that pass the one before.

    before, after: numbers of the places before and after each token, from 0; a rollout that passes a place twice counts
    once. Numbers are never shared between prompts. reached: tokens that count. Where no other rollout passes the place
    before, the mean of the others at the last place where there were some. UserError for a group of one.
    """
    if rewards.shape[-1] < 2:
        raise UserError("merged rollouts need at least two rollouts per prompt, got G = 1; draw groups of 2 or more")
    own = (rewards - rewards[:, :1]).reshape(-1)  # so that equal rewards are exactly 0, whatever their mean rounds to
    row = torch.arange(len(before), device=before.device)[:, None].expand_as(before)
    width = int(torch.stack((before.max(), after.max())).max()) + 1
    visits = torch.unique(torch.cat([(row * width + positions)[reached] for positions in (before, after)]))
    total = own.new_zeros(width).index_add_(0, visits % width, own[visits // width])
    count = own.new_zeros(width).index_add_(0, visits % width, own.new_ones(len(visits)))
    value = total[after] / count[after].clamp(min=1)
    others = count[before] - 1
    mean = (total[before] - own[:, None]) / others.clamp(min=1)
    measured = (others > 0) & reached
    last = torch.where(measured, torch.arange(before.shape[1], device=before.device), 0).cummax(-1).values
    return (value - mean.gather(-1, last)) * reached
