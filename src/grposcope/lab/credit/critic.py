"""Credit from a critic: generalized advantage estimation (GAE) with a learned value V̂ of every state.

With V̂(s_t) the expected reward before token t as a critic sees it, V̂ = 0 behind the last token, a reward ρ_t on the
last token only, and δ_t = ρ_t + γ V̂(s_{t+1}) − V̂(s_t),

    A_t = Σ_{k ≥ 0} (γλ)^k δ_{t+k}                                          arXiv:1506.02438
        = Σ_{k ≥ 0} γ^k ρ_{t+k} − V̂(s_t)          for λ = 1, as in ORZ (arXiv:2503.24290) with γ = 1
    λ   = 1 − 1/(α l)                              for a rollout of l tokens, as in VAPO (arXiv:2504.05118)

Bias. The critic has learned from earlier batches only, so V̂(s_t) does not depend on what the rollout does from t on.
With λ = γ = 1 the gradient estimate is therefore unbiased whatever V̂ is. With λ < 1 it is unbiased where V̂ is the
policy's own value at every state, and otherwise biased by what V̂ gets wrong; V̂ = 0 makes λ a discount of the reward by
the tokens still to come. γ < 1 is another objective. A λ that follows the length of the rollout is biased even with an
exact V̂: the length is decided after t, so the weights of later δ hang together with them. Whitening, (A − mean) over
the standard deviation of all tokens of the batch, subtracts and divides by what depends on the rollout itself: a bias
of the order of one over the tokens of the batch, and another length of step. All checked by enumeration.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.core.capabilities import CRITIC
from grposcope.core.named_settings import Choice, Decimal, Whole
from grposcope.lab.credit.source import CreditSource
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


def _generalized_advantage(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    decay: float | Float[Tensor, " B"] = 0.95,
    gamma: float = 1.0,
) -> Float[Tensor, "B T"]:
    """A_t of every token, 0 where masked, in the units of the rewards.

    rewards: on the token that earns them. values: before each token. decay: λ, one or a number per rollout. Masked
    tokens are no decisions: the state after a token is the one before the next that is not masked.
    """
    later = torch.zeros_like(values[:, 0])  # A of the next token, and V̂ before it
    after = torch.zeros_like(later)
    credit = torch.zeros_like(values)
    for t in reversed(range(mask.shape[-1])):
        here = mask[:, t]
        now = rewards[:, t] + gamma * after - values[:, t] + gamma * decay * later
        later, after = torch.where(here, now, later), torch.where(here, values[:, t], after)
        credit[:, t] = now.where(here, 0.0)
    return credit


def _on_last(rewards: Float[Tensor, "P G"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The outcome reward of each rollout on its last token."""
    behind = mask.flip(-1).cumsum(-1).flip(-1)
    return torch.where(mask & (behind == 1), rewards.reshape(-1, 1).double(), 0.0)


def _length_adaptive(mask: Bool[Tensor, "B T"], alpha: float) -> Float[Tensor, " B"]:
    """λ = 1 − 1/(α l) of each rollout of l tokens; 0 where that would be negative."""
    return (1 - 1 / (alpha * mask.sum(-1).clamp(min=1).double())).clamp(min=0.0)


def _whitened(credit: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """(A − mean)/(σ + 1e-8) over all tokens that are not masked, ddof 1; 0 where they are all equal."""
    inside = credit[mask]
    if len(inside) < 2 or bool((inside == inside[0]).all()):
        return torch.zeros_like(credit)
    return ((credit - inside.mean()) / (inside.std() + 1e-8)).where(mask, 0.0)


def targets(rollouts: RolloutBatch, decay: float, gamma: float) -> Float[Tensor, "B T"]:
    """What the critic learns: the λ-return V̂(s_t) + A_t, which is the reward itself for λ = γ = 1; 0 where masked."""
    values = values_of(rollouts)
    rewards = _on_last(rollouts.rewards, rollouts.mask)
    advantage = _generalized_advantage(rewards, values, rollouts.mask, decay, gamma)
    return (advantage + values).where(rollouts.mask, 0.0)


def _of_rollouts(
    objective: Objective,
    rollouts: RolloutBatch,
    gamma: float = 1.0,
    alpha: float | None = None,
    whiten: str = "no",
    **settings: object,
) -> Float[Tensor, "B T"]:
    """`_generalized_advantage` of the outcome rewards and the values that rollouts carry, whatever the objective's.

    `lambda` among the settings is λ, in whose place `alpha` takes the length-adaptive one; those of the critic itself
    are its trainer's. UserError without values.
    """
    values, mask = values_of(rollouts), rollouts.mask
    decay = float(str(settings.get("lambda", 0.95))) if alpha is None else _length_adaptive(mask, alpha)
    credit = _generalized_advantage(_on_last(rollouts.rewards, mask), values, mask, decay, gamma)
    return _whitened(credit, mask) if whiten == "yes" else credit


def values_of(rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
    """The values that a critic gave the rollouts, in float64; UserError without."""
    lacking = "learns beside the policy in our own training loop; these rollouts have no values"
    return rollouts.annotation("values", f"credit value needs a critic, which {lacking}").double()


SOURCES: dict[str, CreditSource] = {
    "value": CreditSource(
        _of_rollouts,
        "what a critic trained beside the policy did not predict (GAE)",
        needs=frozenset({CRITIC}),
        settings={
            "lambda": Decimal(0.95, 0.0, 1.0, "λ of GAE; 1 for the reward less the value", closed=True),
            "gamma": Decimal(1.0, 0.0, 1.0, "discount per token", closed=True),
            "alpha": Decimal(None, 0.0, math.inf, "λ = 1 − 1/(α · length) in place of lambda (VAPO), biased"),
            "critic_lambda": Decimal(1.0, 0.0, 1.0, "λ of the returns that the critic learns", closed=True),
            "whiten": Choice(("no", "yes"), "subtract the batch's mean and divide by its σ, biased"),
            "trunk": Choice(("own", "shared"), "layers below the value head: a copy that learns, or the policy's"),
            "updates": Whole(4, 1, "steps of the critic per optimiser step, each on a part of the batch"),
            "lr": Decimal(None, 0.0, math.inf, "learning rate of the critic"),
            "warmup": Whole(0, 0, "optimiser steps in which only the critic learns"),
        },
    ),
}
"""Name of a setting -> source of credit."""
