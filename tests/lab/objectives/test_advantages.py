"""Advantages: their expectations by enumeration of all 2^G outcomes, their invariances, their degenerate groups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.objectives import advantages
from reference import losses
from reference.enumerate import bernoulli, binomial, expectation, gradient

Advantage = Callable[[Tensor], Tensor]

GROUPS = [2, 3, 5, 8]
CHANCES = [0.05, 0.3, 0.5, 0.9]
exact = partial(pytest.approx, rel=1e-12, abs=1e-12)

plain = partial(advantages.standardized, ddof=0, eps=0.0)
GROUPED: dict[str, Advantage] = {
    "centered": advantages.centered,
    "leave_one_out": advantages.leave_one_out,
    "standardized": advantages.standardized,
    "batch_standardized": advantages.batch_standardized,
    "mean_normalized": advantages.mean_normalized,
}
TWINS = {
    "centered": losses.centered,
    "leave_one_out": losses.leave_one_out,
    "standardized": losses.standardized,
    "batch_standardized": losses.batch_standardized,
    "mean_normalized": losses.mean_normalized,
    "exponential": losses.exponential,
    "shrunk": losses.shrunk,
    "whitened": losses.whitened,
}


def on_lists(advantage: Advantage) -> Callable[[list[float]], list[float]]:
    return lambda rewards: advantage(torch.tensor([rewards], dtype=torch.float64))[0].tolist()


def some_rewards(seed: int = 0, prompts: int = 3, group: int = 4) -> Tensor:
    return torch.rand(prompts, group, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def spread(k: int, group: int) -> float:
    return math.sqrt(k / group * (1 - k / group))


# Expectations. The policy's value is p, so g = dp/dθ = p(1 − p).


@pytest.mark.parametrize("p", CHANCES)
@pytest.mark.parametrize("group", GROUPS)
def test_expected_gradient_of_the_linear_baselines(group: int, p: float) -> None:
    g = p * (1 - p)
    assert gradient(on_lists(advantages.none), p, group) == exact(g)
    assert gradient(on_lists(advantages.leave_one_out), p, group) == exact(g)
    assert gradient(on_lists(advantages.centered), p, group) == exact(g * (group - 1) / group)


@pytest.mark.parametrize("p", CHANCES)
@pytest.mark.parametrize("group", GROUPS)
def test_standardization_reweights_prompts(group: int, p: float) -> None:
    weight = binomial(partial(spread, group=group), p, group) / (p * (1 - p))
    expected = weight * p * (1 - p)
    assert gradient(on_lists(plain), p, group) == exact(expected)
    sample_std = partial(advantages.standardized, ddof=1, eps=0.0)
    assert gradient(on_lists(sample_std), p, group) == exact(expected * math.sqrt((group - 1) / group))


@pytest.mark.parametrize("p", CHANCES)
@pytest.mark.parametrize("group", GROUPS)
def test_mean_normalization_estimates_the_gradient_of_log_value(group: int, p: float) -> None:
    """E = (1 − (1−p)^{G−1}) ∇log p: all of it but the part that groups without a success cannot see."""
    expected = (1 - (1 - p) ** (group - 1)) * (1 - p)
    assert gradient(on_lists(partial(advantages.mean_normalized, eps=0.0)), p, group) == exact(expected)


@pytest.mark.parametrize("p", CHANCES)
@pytest.mark.parametrize("group", GROUPS)
def test_probability_of_a_dead_group(group: int, p: float) -> None:
    def dead(rewards: tuple[int, ...]) -> float:
        return float(advantages.dead(torch.tensor([rewards], dtype=torch.float64)))

    assert expectation(dead, bernoulli(p), group) == exact(p**group + (1 - p) ** group)


# Values and invariances


@pytest.mark.parametrize("name", TWINS)
def test_twins(name: str) -> None:
    rewards = some_rewards()
    expected = torch.tensor(TWINS[name](rewards.tolist()), dtype=torch.float64).reshape(rewards.shape)
    torch.testing.assert_close(getattr(advantages, name)(rewards), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["standardized", "batch_standardized", "whitened"])
def test_ddof_and_eps_are_the_callers(name: str) -> None:
    rewards = some_rewards(1)
    ours = getattr(advantages, name)(rewards, ddof=0, eps=0.5)
    expected = torch.tensor(TWINS[name](rewards.tolist(), 0, 0.5), dtype=torch.float64)
    torch.testing.assert_close(ours.reshape(-1), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_sums_to_zero(name: str) -> None:
    assert GROUPED[name](some_rewards()).sum(-1).tolist() == exact([0.0] * 3)


def test_whitened_sums_to_zero_over_the_batch_but_not_within_groups() -> None:
    given = advantages.whitened(some_rewards())
    assert float(given.sum()) == exact(0.0)
    assert float(given.sum(-1).abs().min()) > 0.1


@pytest.mark.parametrize("name", ["centered", "leave_one_out", "standardized", "batch_standardized", "whitened"])
def test_shifting_rewards_changes_nothing(name: str) -> None:
    advantage, rewards = getattr(advantages, name), some_rewards()
    torch.testing.assert_close(advantage(rewards + 3.0), advantage(rewards), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["none", "centered", "leave_one_out"])
def test_linear_advantages_scale_with_the_rewards(name: str) -> None:
    advantage, rewards = getattr(advantages, name), some_rewards()
    torch.testing.assert_close(advantage(7.0 * rewards), 7.0 * advantage(rewards), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["standardized", "batch_standardized", "whitened", "mean_normalized"])
def test_normalized_advantages_do_not_know_the_scale(name: str) -> None:
    advantage, rewards = partial(getattr(advantages, name), eps=0.0), some_rewards()
    torch.testing.assert_close(advantage(7.0 * rewards), advantage(rewards), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*GROUPED, "none", "whitened"])
def test_permuting_rollouts_permutes_advantages(name: str) -> None:
    advantage, rewards = getattr(advantages, name), some_rewards()
    order, prompts = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 2, 0])
    expected = advantage(rewards)[prompts][:, order]
    torch.testing.assert_close(advantage(rewards[prompts][:, order]), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["centered", "leave_one_out", "standardized", "mean_normalized"])
def test_groups_do_not_see_each_other(name: str) -> None:
    rewards = some_rewards()
    together = GROUPED[name](rewards)
    for row, alone in zip(together, rewards, strict=True):
        torch.testing.assert_close(GROUPED[name](alone), row, rtol=1e-14, atol=1e-14)


def test_batch_standardized_has_one_scale_for_all_prompts() -> None:
    """Relative weights of prompts stay those of `centered`, and the group's own mean is the baseline."""
    rewards = some_rewards()
    ratio = advantages.batch_standardized(rewards) / advantages.centered(rewards)
    assert float(ratio.max() - ratio.min()) < 1e-12


def test_mean_normalized_is_the_score_of_successes_less_the_score_of_all() -> None:
    rewards = torch.tensor([[1, 0, 0, 1, 0]], dtype=torch.float64)
    scores = some_rewards(3, 5, 7)
    estimate = advantages.mean_normalized(rewards, eps=0.0)[0] @ scores / 5
    torch.testing.assert_close(estimate, scores[rewards[0] == 1].mean(0) - scores.mean(0), rtol=1e-12, atol=1e-12)


# Degenerate groups

EPS_ZERO: dict[str, Advantage] = {
    "standardized": partial(advantages.standardized, eps=0.0),
    "standardized, ddof 0": plain,
    "batch_standardized": partial(advantages.batch_standardized, eps=0.0),
    "mean_normalized": partial(advantages.mean_normalized, eps=0.0),
    "whitened": partial(advantages.whitened, eps=0.0),
}


@pytest.mark.parametrize("advantage", [*GROUPED.values(), advantages.whitened, *EPS_ZERO.values()])
def test_equal_rewards_give_exactly_zero(advantage: Advantage) -> None:
    """Also where the mean is not exactly the reward in floating point (three times 0.1), and with ε = 0."""
    for group, reward, dtype in itertools.product((2, 3, 7), (0.0, 1.0, 0.1), (torch.float32, torch.float64)):
        assert advantage(torch.full((2, group), reward, dtype=dtype)).tolist() == [[0.0] * group] * 2


def test_a_dead_group_beside_a_live_one() -> None:
    rewards = torch.tensor([[0.1, 0.1, 0.1], [0.0, 1.0, 0.0]], dtype=torch.float64)
    for advantage in (*GROUPED.values(), plain):
        given = advantage(rewards)
        assert given[0].tolist() == [0.0] * 3
        assert given[1].abs().min() > 0.1
    assert advantages.dead(rewards).tolist() == [True, False]


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_of_one_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="G = 1"):
        GROUPED[name](torch.ones(3, 1))


@pytest.mark.filterwarnings("error")
def test_whitened_takes_any_group_size() -> None:
    rewards = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)
    assert advantages.whitened(rewards)[:, 0].tolist() == exact(losses.whitened(rewards.tolist()))
    assert advantages.whitened(torch.ones(1, 1)).tolist() == [[0.0]]


def test_mean_normalized_refuses_negative_rewards() -> None:
    with pytest.raises(UserError, match="rewards ≥ 0"):
        advantages.mean_normalized(torch.tensor([[1.0, -0.5]]))


@pytest.mark.parametrize("name", ["none", *GROUPED])
def test_a_rollout_without_a_reward_has_no_advantage_and_changes_no_other(name: str) -> None:
    advantage = advantages.none if name == "none" else GROUPED[name]
    rewards, kept = some_rewards(prompts=1, group=5), [0, 1, 3, 4]
    missing = rewards.clone()
    missing[0, 2] = math.nan
    found = advantage(missing)
    assert found[0, 2] == 0
    torch.testing.assert_close(found[:, kept], advantage(rewards[:, kept]))


@pytest.mark.parametrize("chances", [(0.05, 0.2), (0.5, 0.02), (0.9, 0.9)])
@pytest.mark.parametrize("centre", [0.0, 0.3])
def test_a_shrunk_baseline_is_unbiased_over_all_outcomes_of_a_batch(
    chances: tuple[float, float], centre: float
) -> None:
    """Over the 2^6 outcomes of two groups of three the mean gradient of each prompt is p(1 − p), whatever λ is."""
    total = [0.0, 0.0]
    for outcome in itertools.product((0.0, 1.0), repeat=6):
        rewards = torch.tensor(outcome, dtype=torch.float64).reshape(2, 3)
        p = torch.tensor(chances, dtype=torch.float64)[:, None]
        chance = float(torch.where(rewards == 1, p, 1 - p).prod())
        found = advantages.shrunk(rewards, centre)
        for prompt in range(2):
            total[prompt] += chance * float((found[prompt] * (rewards[prompt] - chances[prompt])).mean())
    assert total == [exact(p * (1 - p)) for p in chances]


@pytest.mark.parametrize(("group", "alike"), [(2, True), (3, True), (4, False), (8, False)])
def test_standardized_advantages_are_a_multiple_of_leave_one_out_at_two_and_three(group: int, alike: bool) -> None:
    """Over every live group of two-valued rewards: one factor, so that training with either differs in scale alone."""
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=group))[1:-1], dtype=torch.float64)
    factors = advantages.standardized(every, eps=0.0) / advantages.leave_one_out(every)
    spread = float(factors.max() - factors.min())
    assert spread < 1e-12 if alike else spread > 0.05
    if group == 3:
        assert float(factors[0, 0]) == pytest.approx(2 / math.sqrt(3))


def test_a_shrunk_baseline_lies_between_none_and_leave_one_out() -> None:
    hard = torch.zeros(8, 4, dtype=torch.float64)
    hard[0, 0] = 1
    found = advantages.shrunk(hard)
    assert float(found[0, 0]) == 1
    assert -0.34 < float(found[0, 1]) <= 0
    mixed = torch.tensor([[1.0, 0, 1, 0], [1, 1, 1, 0], [0, 1, 1, 0]], dtype=torch.float64)
    between = advantages.shrunk(mixed)
    bare, full = mixed, advantages.leave_one_out(mixed)
    assert bool((between <= torch.maximum(bare, full) + 1e-12).all())
    assert bool((between >= torch.minimum(bare, full) - 1e-12).all())
    assert advantages.shrunk(mixed[:1]).tolist() == [
        pytest.approx(row) for row in advantages.leave_one_out(mixed[:1]).tolist()
    ]
