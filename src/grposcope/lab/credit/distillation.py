"""Credit from another distribution over the same tokens: a teacher's, or the policy's own with feedback.

With a_t = log q(y_t | s_t) − log π(y_t | s_t) for tokens that the policy itself drew, q the teacher,

    A_t = Σ_{u ≥ t} γ^(u − t) a_u  +  c Â,        Â the objective's advantage, c its weight, 0 for none

(on-policy distillation: arXiv:2306.13649; with feedback in the prompt as q: SDPO, arXiv:2601.20802). Every a_t is a
constant in the update. E Σ_t A_t ∇log π(y_t | s_t), for c = 0, is without bias

    γ = 0    −E_{s ~ π} Σ_t ∇ KL(π(· | s_t) ‖ q(· | s_t)), the states held where they are: how π gets to s_t is not seen
    γ = 1    −∇ KL(π ‖ q) of whole completions

and for γ between them neither. It is no gradient of the task's reward: at c = 0 the policy becomes the teacher, with
the teacher's errors. With feedback q changes as the policy does and is held still within an update. A token whose
logits are cut off by top-k or top-p counts as if they were not.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.core.capabilities import FEEDBACK, TEACHER
from grposcope.core.named_settings import Decimal, Text
from grposcope.lab.credit.source import CreditSource
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


def _log_ratio(
    logp: Float[Tensor, "B T"], other: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], gamma: float = 0.0
) -> Float[Tensor, "B T"]:
    """Σ_{u ≥ t} γ^(u − t) (log q − log π) in nats, over tokens that are not masked; 0 where masked."""
    ratio = (other.double() - logp.double()).where(mask, 0.0)
    if gamma == 0:
        return ratio
    total, later = torch.zeros_like(ratio), torch.zeros_like(ratio[:, 0])
    for t in reversed(range(mask.shape[-1])):
        later = torch.where(mask[:, t], ratio[:, t] + gamma * later, later)
        total[:, t] = later.where(mask[:, t], 0.0)
    return total


def _of_rollouts(
    objective: Objective, rollouts: RolloutBatch, gamma: float = 0.0, outcome: float = 0.0, **settings: object
) -> Float[Tensor, "B T"]:
    """`_log_ratio` of the rollouts, plus `outcome` times the objective's advantage; UserError without log q."""
    other = rollouts.annotation(
        "other_logp",
        "credit teacher and credit feedback need the log-probabilities of another distribution, which these rollouts "
        "do not carry",
    )
    credit = _log_ratio(rollouts.logp, other, rollouts.mask, gamma)
    return credit + outcome * objective.token_advantages(rollouts, torch.float64) if outcome else credit


SOURCES: dict[str, CreditSource] = {
    "teacher": CreditSource(
        _of_rollouts,
        "log-probability under a teacher minus the policy's own",
        needs=frozenset({TEACHER}),
        settings={
            "model": Text("", "the teacher, a name or a folder"),
            "gamma": Decimal(0.0, 0.0, 1.0, "weight of a later token's log-ratio per token", closed=True),
            "outcome": Decimal(0.0, 0.0, math.inf, "weight of outcome credit that is added", closed=True),
        },
    ),
    "feedback": CreditSource(
        _of_rollouts,
        "the same with the policy itself as teacher, told the right answer",
        needs=frozenset({FEEDBACK}),
        settings={
            "gamma": Decimal(0.0, 0.0, 1.0, "weight of a later token's log-ratio per token", closed=True),
            "outcome": Decimal(0.0, 0.0, math.inf, "weight of outcome credit that is added", closed=True),
        },
    ),
}
"""Name of a setting -> source of credit."""
