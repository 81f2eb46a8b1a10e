"""Process supervision against a loop over steps."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import within_ulps
from torch import Tensor

from grposcope.lab.credit.process import process
from reference import losses

GROUP = 2
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)
ENDS = torch.tensor([[0, 1, 0, 1, 0], [0, 0, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)
REWARDS = torch.tensor([[0, 1, 0, 0, 0], [0, 0, 0.4, 0, 0], [1, 0.25, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.float64)


def slow_process(rewards: Tensor, ends: Tensor, mask: Tensor, group: int, eps: float) -> Tensor:
    out = torch.zeros(mask.shape, dtype=torch.float64)
    for first in range(0, len(mask), group):
        rows = range(first, first + group)
        steps = [float(rewards[i, t]) for i in rows for t in range(mask.shape[1]) if ends[i, t]]
        if len(steps) < 2:
            continue
        centre, scale = losses.mean(steps), losses.deviation(steps, 1) + eps
        for i in rows:
            for t in range(mask.shape[1]):
                later = [u for u in range(t, mask.shape[1]) if ends[i, u]]
                out[i, t] = math.fsum((float(rewards[i, u]) - centre) / scale for u in later) if mask[i, t] else 0.0
    return out


@pytest.mark.parametrize("eps", [1e-4, 0.3])
def test_process_credit_against_the_loop(eps: float) -> None:
    given = process(REWARDS, ENDS, MASK, GROUP, eps)
    torch.testing.assert_close(given, slow_process(REWARDS, ENDS, MASK, GROUP, eps), rtol=1e-12, atol=1e-12)


def test_tokens_after_the_last_step_get_nothing() -> None:
    given = process(REWARDS, ENDS, MASK, GROUP)
    assert given[0].tolist()[4] == 0.0
    assert float(given[0, :4].abs().min()) > 0.0


def test_a_step_credits_what_came_before_it() -> None:
    """A token's credit less the next one's is the normalised reward of the step that ends on it."""
    given = process(REWARDS, ENDS, MASK, GROUP)
    difference = given[:, :-1] - given[:, 1:]
    assert torch.equal(difference.abs() > 1e-12, ENDS[:, :-1])


def test_a_masked_token_between_steps_gets_nothing() -> None:
    mask = MASK.clone()
    mask[2, 2] = False
    expected = process(REWARDS, ENDS, MASK, GROUP) * mask
    torch.testing.assert_close(process(REWARDS, ENDS, mask, GROUP), expected, rtol=0, atol=0)


@pytest.mark.parametrize("reward", [1.0, 0.1])
def test_equal_step_rewards_give_exactly_zero(reward: float) -> None:
    assert not process(reward * ENDS.double(), ENDS, MASK, GROUP).any()


def test_one_step_in_a_group_gives_zero() -> None:
    ends = torch.zeros_like(ENDS)
    ends[0, 1] = True
    assert not process(REWARDS, ends, MASK, GROUP).any()


def test_groups_are_normalised_apart() -> None:
    both = process(REWARDS, ENDS, MASK, GROUP)
    alone = process(REWARDS[:GROUP], ENDS[:GROUP], MASK[:GROUP], GROUP)
    assert within_ulps(both[:GROUP], alone, 8)


def test_what_stands_outside_the_steps_has_no_say() -> None:
    rewards, ends = REWARDS.clone(), ENDS.clone()
    rewards[~ENDS] = torch.nan
    ends[1, 4] = True  # behind the end of the completion
    expected = process(REWARDS, ENDS, MASK, GROUP)
    torch.testing.assert_close(process(rewards, ends, MASK, GROUP), expected, rtol=0, atol=0)
