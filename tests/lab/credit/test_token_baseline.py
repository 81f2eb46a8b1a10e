"""The optimal token baseline: a loop over its definition, and the expected gradient over every group."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from test_merging import Listed, logits_of, text_reward
from text_policies import by_row, collision
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.credit import chosen
from grposcope.lab.credit.token_baseline import _token_baseline
from grposcope.lab.objectives import advantages, recipes


def slow(logp: Tensor, squares: Tensor, mask: Tensor, rewards: Tensor, itself: bool = False) -> Tensor:
    """The definition, rollout by rollout; with `itself` the scored rollout is in the sums, as published."""
    group, out = rewards.shape[-1], torch.zeros(mask.shape, dtype=torch.float64)

    def energy(j: int, t: int) -> float:
        return sum(float(1 - 2 * logp[j, u].exp() + squares[j, u]) for u in range(t + 1) if mask[j, u])

    for i in range(len(mask)):
        prompt = i // group
        rows = [j for j in range(prompt * group, (prompt + 1) * group) if itself or j != i]
        reward = {j: float(rewards[prompt, j % group]) for j in rows}
        baseline = sum(reward.values()) / len(rows)
        for t in range(mask.shape[1]):
            there = [j for j in rows if mask[j, t:].any()]
            weights = {j: energy(j, t) for j in there}
            if there:
                plain = not sum(weights.values())
                weights = dict.fromkeys(there, 1.0) if plain else weights
                baseline = sum(reward[j] * weights[j] for j in there) / sum(weights.values())
            out[i, t] = float(rewards[prompt, i % group]) - baseline if mask[i, t] else 0.0
    return out


@pytest.mark.parametrize("case", CASES[:5], ids=[case.name for case in CASES[:5]])
def test_against_the_loop(case: object) -> None:
    rollouts, logp = case.rollouts, case.logp  # type: ignore[attr-defined]
    random = torch.Generator().manual_seed(1)
    squares = logp.exp().square() + 0.2 * torch.rand(logp.shape, generator=random, dtype=torch.float64)
    logp, squares = (a.where(rollouts.mask, 0.0) for a in (logp, squares))
    given = _token_baseline(logp, squares, rollouts.mask, rollouts.rewards)
    torch.testing.assert_close(given, slow(logp, squares, rollouts.mask, rollouts.rewards), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("itself", [False, True])
def test_the_gradient_is_unbiased_without_the_rollout_itself_and_biased_with_it(itself: bool) -> None:
    listed = Listed(2, lambda text: text, text_reward)
    logits = logits_of(listed.contexts)
    logp, squares = listed.token_logp(logits), collision(listed, logits)

    def credit(rows: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
        given = logp[rows], squares[rows], mask, rewards
        return slow(*given, itself=True) if itself else _token_baseline(*given)

    found, truth = listed.expected(logits, by_row(listed, credit), 2), listed.gradient(logits)
    difference = float((found - truth).abs().max() / truth.abs().max())
    assert difference > 1e-2 if itself else difference < 1e-12


def test_equal_norms_give_the_advantage_against_the_others() -> None:
    mask, rewards = torch.ones(4, 3, dtype=torch.bool), torch.tensor([[0.0, 1.0, 2.0, 5.0]]).double()
    same = torch.full((4, 3), 0.5).double()
    given = _token_baseline(same.log(), same, mask, rewards)
    torch.testing.assert_close(given, advantages.leave_one_out(rewards).reshape(-1, 1).expand(4, 3))


def test_a_dead_group_gets_exactly_nothing_and_a_group_of_one_is_refused() -> None:
    mask, half = torch.ones(3, 2, dtype=torch.bool), torch.full((3, 2), 0.3).double()
    assert not _token_baseline(half.log(), half, mask, torch.full((1, 3), 0.1).double()).any()
    with pytest.raises(UserError, match="groups of 2"):
        _token_baseline(half.log(), half, mask, torch.ones(3, 1).double())


def test_rollouts_without_the_sums_are_refused() -> None:
    with pytest.raises(UserError, match="Σπ²"):
        chosen("token_baseline").assign(recipes.GRPO, CASES[0].rollouts)
    given = CASES[0].rollouts.annotated(collision=CASES[0].rollouts.mask.double())
    assert chosen("token_baseline").assign(recipes.GRPO, given).any()
