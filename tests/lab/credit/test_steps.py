"""Credit of steps against a loop over steps, and what it is in single cases."""

from __future__ import annotations

import itertools

import pytest
import torch
from closeness import within_ulps
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.credit.steps import steps

GROUP = 2
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)
ENDS = torch.tensor([[0, 1, 0, 1, 0], [0, 0, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)
REWARDS = torch.tensor([[0, 1, 0, 0.5, 0], [0, 0, 0.4, 0, 0], [1, 0.25, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.float64)


def slow_steps(rewards: Tensor, ends: Tensor, mask: Tensor, group: int) -> Tensor:
    out = torch.zeros(mask.shape, dtype=torch.float64)
    earned = [row[kept].tolist() for row, kept in zip(rewards, ends & mask, strict=True)]
    for i, t in itertools.product(*map(range, mask.shape)):
        if mask[i, t]:
            number = int((ends & mask)[i, :t].sum())
            first = i - i % group
            others = [sum(earned[j][number:]) for j in range(first, first + group) if j != i]
            out[i, t] = sum(earned[i][number:]) - sum(others) / len(others)
    return out


@pytest.mark.parametrize("group", [2, 4])
def test_against_the_loop(group: int) -> None:
    expected = slow_steps(REWARDS, ENDS, MASK, group)
    torch.testing.assert_close(steps(REWARDS, ENDS, MASK, group), expected, rtol=1e-12, atol=1e-12)


def test_the_first_step_compares_whole_returns_and_the_end_what_the_others_still_earned() -> None:
    given = steps(REWARDS, ENDS, MASK, GROUP)
    assert given[0].tolist() == pytest.approx([1.1, 1.1, 0.5, 0.5, 0.0])
    ends = ENDS.clone()
    ends[1] = torch.tensor([1, 0, 0, 0, 0])
    rewards = REWARDS.clone()
    rewards[1] = torch.tensor([0.4, 0, 0, 0, 0])
    assert steps(rewards, ends, MASK, GROUP)[1].tolist() == pytest.approx([-1.1, -0.5, -0.5, 0.0, 0.0])


def test_equal_returns_give_exactly_zero() -> None:
    assert not steps(0.1 * ENDS.double()[[0, 0]], ENDS[[0, 0]], MASK[[0, 0]], GROUP).any()


def test_groups_are_compared_apart() -> None:
    both = steps(REWARDS, ENDS, MASK, GROUP)
    alone = steps(REWARDS[:GROUP], ENDS[:GROUP], MASK[:GROUP], GROUP)
    assert within_ulps(both[:GROUP], alone, 8)


def test_what_stands_outside_the_steps_has_no_say() -> None:
    rewards, ends = REWARDS.clone(), ENDS.clone()
    rewards[~ENDS] = torch.nan
    ends[1, 4] = True  # behind the end of the completion
    torch.testing.assert_close(steps(rewards, ends, MASK, GROUP), steps(REWARDS, ENDS, MASK, GROUP), rtol=0, atol=0)


def test_a_group_of_one_has_nobody_to_compare_with() -> None:
    with pytest.raises(UserError, match="at least two rollouts"):
        steps(REWARDS, ENDS, MASK, 1)
