"""Credit from estimates of the value: what each step changed about the expected reward.

With estimates V̂_0, V̂_1, …, V̂_K of the expected outcome after 0, 1, … steps, V̂_K = r being the outcome itself, a token
of step k has the credit V̂_k − V̂_{k−1} (VinePPO, arXiv:2410.01679). What comes in are these differences on the tokens
that end the steps, the first being V̂_1 − 0, so that they sum to r; V̂_0 is the mean outcome of the other rollouts.
Unbiased where every V̂_k is an unbiased estimate given the first k steps, made without the rest of the rollout.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.lab.objectives import advantages


def values(
    step_rewards: Float[Tensor, "B T"],
    step_ends: Bool[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    group: int,
) -> Float[Tensor, "B T"]:
    """Credit (B, T) from differences of values on the tokens of `step_ends`; 0 where masked and after the last step.

    The last step ends on the last token, as the end of the rollout decides the rest. UserError for group < 2, where
    there is nobody to take V̂_0 from.
    """
    ends = step_ends & mask
    change = step_rewards.where(ends, 0.0)
    number = ends.long().cumsum(-1) - ends.long()  # steps that ended before the token: 0 in the first step
    table = change.new_zeros(len(mask), mask.shape[-1] + 1).scatter_add(-1, number, change)  # a change per step number
    outcome = change.sum(-1).unflatten(0, (-1, group))
    start = (outcome - advantages.leave_one_out(outcome)).flatten()[:, None]  # V̂_0, the mean of the others
    first = (number == 0) & (ends.sum(-1, keepdim=True) > 0)
    return (table.gather(-1, number) - start.where(first, 0.0)) * mask
