"""Boundaries of rollouts: where they lie, and that a rollout's own future has no say in it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.credit import boundaries
from grposcope.lab.rollout_batch import RolloutBatch

MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()


def rollouts(entropy: Tensor | None = None, ends: Tensor | None = None) -> RolloutBatch:
    nothing = torch.zeros(MASK.shape)
    return RolloutBatch(
        prompt_ids=torch.ones(4, 1).long(),
        prompt_mask=torch.ones(4, 1).bool(),
        tokens=torch.tensor([[5, 9, 5, 9, 9], [9, 9, 5, 0, 0], [9, 0, 0, 0, 0], [0, 0, 0, 0, 0]]),
        mask=MASK,
        logp=nothing,
        entropy=nothing if entropy is None else entropy,
        truncated=torch.zeros(4).bool(),
        rewards=torch.zeros(2, 2).double(),
        token_annotations={} if ends is None else {"step_rewards": nothing.double(), "step_ends": ends},
    )


def test_they_lie_after_marked_tokens_but_not_at_the_end() -> None:
    marks = torch.arange(10) == 9
    assert boundaries.marked(rollouts(), marks) == [[2, 4], [1, 2], [], []]


def test_they_lie_after_steps() -> None:
    ends = torch.zeros(MASK.shape).bool()
    ends[0, [0, 2, 4]], ends[1, 1] = True, True
    assert boundaries.steps(rollouts(ends=ends)) == [[1, 3], [2], [], []]
    with pytest.raises(UserError, match="labels steps"):
        boundaries.steps(rollouts())


def test_they_lie_before_a_rise_of_entropy_above_that_of_the_others() -> None:
    entropy = torch.rand(MASK.shape, generator=torch.Generator().manual_seed(3)) * MASK
    found = boundaries.entropy(rollouts(entropy), share=0.4)
    assert any(found)
    for row in range(4):
        others = torch.cat([entropy[j][MASK[j]] for j in range(4) if j != row]).double()
        threshold = torch.quantile(others, 0.6)
        high = [float(value) > threshold for value in entropy[row][MASK[row]]]
        assert found[row] == [t for t in range(1, len(high)) if high[t] and not high[t - 1]]


def test_what_a_rollout_does_later_moves_no_earlier_boundary() -> None:
    entropy = torch.rand(MASK.shape, generator=torch.Generator().manual_seed(3)) * MASK
    later = entropy.clone()
    later[0, 3:] = 50.0
    before, after = (boundaries.entropy(rollouts(e), share=0.4)[0] for e in (entropy, later))
    assert [t for t in before if t < 3] == [t for t in after if t < 3]
