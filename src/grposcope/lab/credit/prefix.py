"""Merged prefixes: what the rollouts that wrote the same text earned, less what the others earned before the token.

Rollouts of a group are draws from one policy, so all that share a text are draws of what follows it. With M(v) the
rollouts of the group that wrote the text v, the token y_t of rollout i, which extends the text s_t to s_t y_t, has the
credit

    A_t = mean of r_j over j in M(s_t y_t)  −  mean of r_j over j in M(s_t) without i

Where nobody else wrote s_t, the second mean stays that of the longest beginning of s_t that another rollout wrote; all
wrote the empty text. Given s_t and y_t, every rollout of the first mean has the expectation Q(s_t, y_t), i included,
and the second does not depend on y_t: the gradient estimate (1/G) Σ_i Σ_t A_t ∇log π is unbiased. Left in the second
mean, the rollout's own reward would bias it. Where no two rollouts share a token this is the advantage against the
mean of the others (RLOO).

The idea of values from merged prefixes is that of TEMPO (arXiv:2509.18314) and λ-GRPO (arXiv:2509.21154), whose weights
differ; leaving the scored rollout out is from this project, checked by enumeration. Needs no tokens but the rollouts'.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grposcope.core.capabilities import PAIRS
from grposcope.lab.credit.merging import merged
from grposcope.lab.credit.source import CreditSource
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


def _prefix(
    tokens: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"], rewards: Float[Tensor, "P G"]
) -> Float[Tensor, "B T"]:
    """Credit (B, T), 0 where masked, in the units of the rewards: not standardized.

    Groups whose rewards are all equal get exactly 0. UserError for a group of one.
    """
    group = rewards.shape[-1]
    after = nodes(tokens, group)
    root = (torch.arange(len(tokens), device=tokens.device) // group)[:, None]  # numbers of no other node
    before = torch.cat((root, after[:, :-1] + len(rewards)), 1)
    reached = mask.flip(-1).cummax(-1).values.flip(-1)  # up to the last token written; masked ones between are context
    return merged(before, after + len(rewards), reached, rewards) * mask


def nodes(tokens: Int[Tensor, "B T"], group: int) -> Int[Tensor, "B T"]:
    """Number of each token's node in the prefix trees, from 0: one per distinct (prompt, text up to this token)."""
    node = torch.zeros_like(tokens)
    before = torch.arange(len(tokens), device=tokens.device) // group  # the root of each prompt
    used = 0
    for t in range(tokens.shape[1]):
        pairs = torch.stack((before, tokens[:, t]), 1)
        which = torch.unique(pairs, dim=0, return_inverse=True)[1] + used
        used = int(which.max()) + 1
        node[:, t] = which
        before = which
    return node


def _of_rollouts(objective: Objective, rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
    """`prefix` of the rollouts and their outcome rewards, whatever the objective's advantage."""
    return _prefix(rollouts.tokens, rollouts.mask, rollouts.rewards)


SOURCES: dict[str, CreditSource] = {
    "prefix": CreditSource(
        _of_rollouts,
        "mean reward of rollouts with the same text up to and with the token, minus that of others with the same text "
        "before it",
        needs=frozenset({PAIRS}),
        unbiased=True,
    ),
}
"""Name of a setting -> source of credit."""
