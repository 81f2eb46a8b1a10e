"""Merged states: what the rollouts that came by the same step earned, less what the others earned before the step.

As in `prefix`, but places are states instead of whole texts: the state after a step is the text of that step, whenever
it was written. With M(s) the rollouts of the group that passed the state s, every token of the step that leads from s
to s' has the credit

    A = mean of r_j over j in M(s')  −  mean of r_j over j in M(s) without i

and tokens of a step that is not closed have the rollout's own reward in place of the first mean. Where nobody else
passed s, the second mean stays that of the last state that another rollout passed. Unbiased where what follows depends
on the text before through its last step alone, as it does for a chain of rewritten expressions once the policy looks at
nothing else; elsewhere biased by how much the values of the merged histories differ. Short arithmetic revisits states
unusually often, which flatters this source.

Anchor states are those of GiGPO (arXiv:2505.10978), merged success rates those of SALT (arXiv:2510.20022); the weights
here are from this project. Needs a task that labels steps, and no further tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grposcope.core.capabilities import PAIRS, STEP_ENDS
from grposcope.lab.credit import labels
from grposcope.lab.credit.merging import merged
from grposcope.lab.credit.source import CreditSource
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


def _state(
    tokens: Int[Tensor, "B T"],
    step_ends: Bool[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    rewards: Float[Tensor, "P G"],
) -> Float[Tensor, "B T"]:
    """Credit (B, T), 0 where masked, in the units of the rewards: not standardized. UserError for a group of one."""
    before, after = places(tokens, step_ends & mask, mask, rewards.shape[-1])
    return merged(before, after, mask, rewards)


def places(
    tokens: Int[Tensor, "B T"], ends: Bool[Tensor, "B T"], mask: Bool[Tensor, "B T"], group: int
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Numbers of the states before and after each token's step; a step that is not closed leads to one of its own."""
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    before, after = torch.zeros_like(tokens), torch.zeros_like(tokens)
    for row in range(len(tokens)):
        ids, prompt, start = tokens[row].tolist(), row // group, 0
        here = numbers.setdefault((prompt, ()), len(numbers))
        length = int(mask[row].nonzero()[-1]) + 1 if mask[row].any() else 0
        for end in [*(ends[row].nonzero()[:, 0] + 1).tolist(), length]:
            if end <= start:
                continue
            closed = bool(ends[row, end - 1])
            key = (prompt, tuple(ids[start:end])) if closed else (-1 - row, ())
            there = numbers.setdefault(key, len(numbers))
            before[row, start:end], after[row, start:end] = here, there
            here, start = there, end
    return before, after


def _of_rollouts(objective: Objective, rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
    """`state` of the rollouts, their steps and outcome rewards, whatever the objective's advantage."""
    _, ends = labels.of_steps(rollouts)
    return _state(rollouts.tokens, ends, rollouts.mask, rollouts.rewards)


SOURCES: dict[str, CreditSource] = {
    "state": CreditSource(
        _of_rollouts,
        "the same, over rollouts that passed through the same step",
        needs=frozenset({PAIRS, STEP_ENDS}),
        warning="credit state treats rollouts that wrote the same step as equal from there on, and is biased as "
        "far as they differ",
    ),
}
"""Name of a setting -> source of credit."""
