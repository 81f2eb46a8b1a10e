"""Outcome credit spread unevenly over a rollout: by position, or by the entropy of the policy.

    position    A_t = Â Σ_{u ≥ t} d^(u − t) = Â (1 − d^(T − t)) / (1 − d)        0 < d < 1, T the length
    entropy     A_t = Â H_t / mean of H over the rollout

with Â the objective's advantage and H_t the entropy of the policy at the token. Both are biased: they multiply the
advantage by a number that depends on where the rollout ends or on what it writes later, so that some decisions count
for more than they earned; neither knows more about which token was right. The tokens' weights of a rollout are scaled
to mean 1, so that the size of the step stays that of outcome credit.

Position is the weight of eligibility traces without a critic (GRPO-λ, arXiv:2510.00194); entropy is in the manner of
GTPO (arXiv:2508.04349), which shapes rewards of successes and failures apart. They need nothing but the rollouts.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.core.capabilities import ENTROPY
from grposcope.core.named_settings import Decimal
from grposcope.lab.credit.source import SPREADS, CreditSource
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


def _position_weights(mask: Bool[Tensor, "B T"], decay: float) -> Float[Tensor, "B T"]:
    """Σ_{u ≥ t} decay^(u − t) over the tokens of each rollout, scaled to mean 1; 0 where masked."""
    to_go = mask.flip(-1).cumsum(-1).flip(-1).double()  # tokens from t to the end, t included
    return _mean_one((1 - decay**to_go) / (1 - decay), mask)


def _entropy_weights(entropy: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """H_t over the mean of H, 1 everywhere on a rollout whose entropies are all 0; 0 where masked."""
    inside = entropy.double().where(mask, 0.0)
    return _mean_one(torch.where(inside.sum(-1, keepdim=True) > 0, inside, 1.0), mask)


def _position(objective: Objective, rollouts: RolloutBatch, decay: float = 0.98) -> Float[Tensor, "B T"]:
    """The objective's advantage times `_position_weights`."""
    return objective.token_advantages(rollouts, torch.float64) * _position_weights(rollouts.mask, decay)


def _entropy(objective: Objective, rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
    """The objective's advantage times `_entropy_weights` of the policy that sampled."""
    return objective.token_advantages(rollouts, torch.float64) * _entropy_weights(rollouts.entropy, rollouts.mask)


def _mean_one(weights: Tensor, mask: Tensor) -> Tensor:
    inside = weights * mask
    return inside * (
        mask.sum(-1, keepdim=True) / inside.sum(-1, keepdim=True).clamp(min=torch.finfo(inside.dtype).tiny)
    )


SOURCES: dict[str, CreditSource] = {
    "position": CreditSource(
        _position,
        "the advantage, weighted by the tokens still to come (biased)",
        provides=SPREADS,
        warning="credit position is biased: it weighs tokens by how long the rollout will be, not by what they earn",
        settings={"decay": Decimal(0.98, 0.0, 1.0, "discount per token in the sum over the tokens still to come")},
    ),
    "entropy": CreditSource(
        _entropy,
        "the advantage, weighted by the policy's entropy (biased)",
        needs=frozenset({ENTROPY}),
        provides=SPREADS,
        warning="credit entropy is biased: it weighs tokens by how undecided the policy was, not by what they earn",
    ),
}
"""Name of a setting -> source of credit."""
