"""Step rewards without bias: what a token still leads to, less the same of the other rollouts at its step number.

With step rewards ρ_1 … ρ_K, return R_k = Σ_{j≥k} ρ_j, a token of step k (after the end of step k − 1, up to and
including the end of step k) has the credit

    A_k = R_k − mean over the other rollouts of their R_k,        R_k = 0 for k > K

and so have tokens after the last step, the decision to stop among them: they belong to step K + 1, where R is 0 and
the others' need not be. What came before a token decides its step number and the earlier rewards; the others are
independent of it. So E[A | prefix, token] = Q(prefix, token) − a number that does not depend on the token, and the
expectation of (1/G) Σ_i Σ_t A ∇log π is the gradient of E Σ_k ρ_k: a result of this project, checked by enumeration.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.core.capabilities import PAIRS, STEP_REWARDS
from grposcope.lab.credit import labels
from grposcope.lab.credit.source import CreditSource
from grposcope.lab.objectives import Objective, advantages
from grposcope.lab.rollout_batch import RolloutBatch


def steps(
    step_rewards: Float[Tensor, "B T"],
    step_ends: Bool[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    group: int,
) -> Float[Tensor, "B T"]:
    """Credit (B, T), 0 where masked, in the units of the rewards: not standardized.

    Where all rollouts of a group have the same return from a step on, its tokens get exactly 0. UserError for
    group < 2, where there is nobody to compare with.
    """
    ends = step_ends & mask
    number = ends.long().cumsum(-1) - ends.long()  # steps that ended before the token: 0 in the first step
    table = step_rewards.new_zeros(len(mask), mask.shape[-1] + 1)  # a reward per step number
    table = table.scatter_add(-1, number, step_rewards.where(ends, 0.0))
    return_to_go = table.flip(-1).cumsum(-1).flip(-1).unflatten(0, (-1, group))  # R_k, (P, G, K)
    compared = advantages.leave_one_out(return_to_go.transpose(-2, -1)).transpose(-2, -1).flatten(0, 1)
    return compared.gather(-1, number) * mask


def _of_rollouts(objective: Objective, rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
    """`steps` of the rollouts' step labels; the objective's advantage is not used, so nothing standardizes it."""
    return steps(*labels.of_steps(rollouts), rollouts.mask, rollouts.groups[1])


SOURCES: dict[str, CreditSource] = {
    "steps": CreditSource(
        _of_rollouts,
        "verified steps still to come, minus those of the other rollouts, never standardized",
        needs=frozenset({PAIRS, STEP_REWARDS}),
        from_steps=steps,
    ),
}
"""Name of a setting -> source of credit."""
