"""Process supervision as published: a token's credit is the standardized reward of the steps it still leads to.

It is biased, `steps` is not: the mean over all steps of a group depends on how many steps its rollouts chose to write,
so that a step less rewarding than the mean speaks against writing it, and tokens after the last step, the decision to
stop among them, get 0. Where steps beyond the first are right less often, that teaches the policy to stop.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.core.capabilities import STEP_REWARDS
from grposcope.lab.credit import labels
from grposcope.lab.credit.source import CreditSource
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


def process(
    step_rewards: Float[Tensor, "B T"],
    step_ends: Bool[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    group: int,
    eps: float = 1e-4,
) -> Float[Tensor, "B T"]:
    """Process supervision of GRPO (arXiv:2402.03300, section 4.1.3), with ddof 1.

    All step rewards of a group are standardized together, r̃ = (r − mean)/(σ + ε), and a token's
    advantage is the sum of r̃ over the steps that end at it or later. Tokens after the last step
    get 0. A group with fewer than two steps, or with equal step rewards, contributes nothing.
    """
    ends = (step_ends & mask).reshape(-1, group, mask.shape[-1])
    rewards = step_rewards.reshape(ends.shape)
    count = ends.sum((-2, -1), keepdim=True)
    mean = rewards.where(ends, 0.0).sum((-2, -1), keepdim=True) / count.clamp(min=1)
    highest, lowest = rewards.where(ends, -torch.inf).amax((-2, -1)), rewards.where(ends, torch.inf).amin((-2, -1))
    # equal rewards are exactly 0, even if their mean rounds to another number
    centred = (rewards - mean).where(ends & (highest > lowest)[:, None, None], 0.0)
    deviation = (centred.square().sum((-2, -1), keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    normalised = (centred / (deviation + eps)).reshape(step_rewards.shape)
    return normalised.flip(-1).cumsum(-1).flip(-1) * mask


def _of_rollouts(objective: Objective, rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
    """`process` of the rollouts' step labels, whatever the objective's advantage; UserError without labels."""
    return process(*labels.of_steps(rollouts), rollouts.mask, rollouts.groups[1])


SOURCES: dict[str, CreditSource] = {
    "process": CreditSource(
        _of_rollouts,
        "process supervision of the GRPO paper (biased)",
        needs=frozenset({STEP_REWARDS}),
        from_steps=process,
        warning="credit process, GRPO's process supervision as published, is biased: where later steps are right less "
        "often than earlier ones it teaches the policy to stop early; credit steps is not biased",
    ),
}
"""Name of a setting -> source of credit."""
