"""Optimal token baseline: the baseline of least variance at each token position, by the other rollouts.

With the squared norm of a token's score at the logits, ‖e_y − π‖² = 1 − 2π_y + Σ_v π_v², its running sum over a
rollout W_t = Σ_{u ≤ t} ‖e_{y_u} − π_u‖², and the reward r, a token of rollout i at position t has the credit

    A_t = r_i − Σ_{j ≠ i} r_j W_{j,t} / Σ_{j ≠ i} W_{j,t}          over the others of the group that reach position t

Where no other rollout is as long, the baseline stays that of the last position which another reached; where all W are
0 it is the plain mean. The baseline is made of other rollouts and of the position alone, so the gradient estimate
(1/G) Σ_i Σ_t A_t ∇log π is unbiased, checked by enumeration. As published (arXiv:2602.07078) the sums include rollout i
itself, whose W_t contains the token's own score: that is biased by a term of order 1/G, and here the scored rollout is
left out. W_t is a stand-in for the norm of the gradient: it is exact at the logits, not at the weights, and it adds
norms where the scores of a rollout may cancel. Needs Σπ² of every token, which a forward pass over the rollouts gives.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.core.capabilities import COLLISION, PAIRS
from grposcope.core.errors import UserError
from grposcope.lab.credit.source import CreditSource
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


def _token_baseline(
    logp: Float[Tensor, "B T"],
    collision: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    rewards: Float[Tensor, "P G"],
) -> Float[Tensor, "B T"]:
    """Credit (B, T), 0 where masked, in the units of the rewards: not standardized. collision: Σ_v π_v².

    Groups whose rewards are all equal get exactly 0. UserError for a group of one.
    """
    if rewards.shape[-1] < 2:
        raise UserError("the optimal token baseline needs groups of 2 or more: it is made of the other rollouts")
    norms = (1 - 2 * logp.double().exp() + collision.double()).clamp(min=0.0).where(mask, 0.0)
    weight = norms.cumsum(-1).unflatten(0, rewards.shape)  # W_t, (P, G, T)
    reached = mask.flip(-1).cummax(-1).values.flip(-1).unflatten(0, rewards.shape)
    own = (rewards - rewards[:, :1])[..., None]  # so that equal rewards are exactly 0
    weight = weight * reached
    others, count = _without(weight), _without(reached.double())
    weighted, plain = _without(weight * own), _without(reached * own)
    baseline = torch.where(others > 0, weighted / others.clamp(min=torch.finfo(others.dtype).tiny), plain / count)
    defined = count > 0
    places = torch.arange(mask.shape[-1], device=mask.device)
    last = torch.where(defined, places, 0).cummax(-1).values
    mean = _without(own.expand_as(weight)) / (rewards.shape[-1] - 1)  # where no other has a token at all
    baseline = torch.where(defined.cummax(-1).values, baseline.gather(-1, last), mean)
    return (own - baseline).flatten(0, 1).where(mask, 0.0)


def _without(values: Float[Tensor, "P G T"]) -> Float[Tensor, "P G T"]:
    """Of each rollout, the sum over the others of its group, added without it: a difference of sums would round."""
    group = values.shape[1]
    others = ~torch.eye(group, dtype=torch.bool, device=values.device)
    return torch.einsum("ij,pjt->pit", others.to(values), values)


def _of_rollouts(objective: Objective, rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
    """`_token_baseline` of the rollouts, whatever the objective's advantage; UserError without Σπ²."""
    lacking = "credit token_baseline needs Σπ² of every token, which these rollouts do not carry"
    return _token_baseline(rollouts.logp, rollouts.annotation("collision", lacking), rollouts.mask, rollouts.rewards)


SOURCES: dict[str, CreditSource] = {
    "token_baseline": CreditSource(
        _of_rollouts,
        "the reward, minus the rewards of the others weighted by their score norms up to the token",
        needs=frozenset({PAIRS, COLLISION}),
        unbiased=True,
    ),
}
"""Name of a setting -> source of credit."""
