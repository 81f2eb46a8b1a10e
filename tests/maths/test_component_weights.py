"""What components weigh: against brute force, exact expectations, and coverage of the intervals."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from grposcope.maths import component_weights
from grposcope.maths.aggregation import Aggregation, Components


def of(rewards: np.ndarray, weights: list[float], **how: object) -> component_weights.RewardWeights:
    given = Components.of_groups([f"r{j}" for j in range(rewards.shape[-1])], rewards)
    return component_weights.measure(given, weights, Aggregation(**how), np.arange(len(rewards)))  # type: ignore[arg-type]


def test_shares_are_those_of_a_brute_force_regression() -> None:
    """Σ a_j A / Σ A² from the deviations themselves; shares of the variance sum to 1."""
    rng = np.random.default_rng(0)
    rewards = rng.random((40, 6, 3)) * [1, 0.3, 0.1]
    rewards[..., 1] -= 0.5 * rewards[..., 0]  # they go against each other
    found = of(rewards, [1, 1, 2], eps=0.0)
    total = rewards @ [1, 1, 2]
    spread = total.std(1, ddof=1)
    parts = (rewards - rewards.mean(1, keepdims=True)) * [1, 1, 2] / spread[:, None, None]
    whole = parts.sum(-1, keepdims=True)
    shares = (parts * whole).sum((0, 1)) / (whole**2).sum()
    effective = (rewards.std(1, ddof=1) * [1, 1, 2] / spread[:, None]).mean(0)
    for j, one in enumerate(found.components):
        assert one.variance_share.value == pytest.approx(shares[j])
        assert one.effective.value == pytest.approx(effective[j])
        assert one.share.value == pytest.approx(effective[j] / effective.sum())
    assert sum(one.variance_share.value for one in found.components) == pytest.approx(1)
    plain = of(rewards, [1, 1, 2], scale="none").components
    assert [one.per_unit.value for one in plain] == pytest.approx([1, 1, 2])
    by_group = rewards.var(1, ddof=1) / spread[:, None]
    assert found.components[0].per_unit.value == pytest.approx(
        by_group[:, 0].sum() / rewards[..., 0].var(1, ddof=1).sum()
    )
    less = rewards - rewards.mean(1, keepdims=True)
    expected = np.corrcoef(less[..., 0].ravel(), less[..., 1].ravel())[0, 1]
    assert found.correlations[0][2].value == pytest.approx(expected)
    assert found.correlations[0][2].value < -0.5


def test_the_error_is_the_jackknife_over_prompts_and_not_over_groups() -> None:
    """Groups of one prompt that repeat are one observation."""
    rng = np.random.default_rng(0)
    rewards = (rng.random((30, 8, 2)) < [0.5, 0.9]) * [1.0, 0.5]
    once = of(rewards, [1, 1])
    given = Components.of_groups("ab", np.concatenate([rewards] * 4))
    again = component_weights.measure(given, [1, 1], Aggregation(), np.tile(np.arange(30), 4))
    for a, b in zip(once.components, again.components, strict=True):
        assert b.share.value == pytest.approx(a.share.value)
        assert b.share.se == pytest.approx(a.share.se)
        assert b.share.n == 30


@pytest.mark.slow
def test_intervals_cover_the_share_of_a_long_run() -> None:
    rng = np.random.default_rng(1)

    def draw(prompts: int) -> np.ndarray:
        p = rng.beta(1, 1, (prompts, 1, 2))
        return (rng.random((prompts, 8, 2)) < p) * [1.0, 0.3]

    truth = of(draw(3000), [1, 1]).components[1].share.value
    covered = [of(draw(60), [1, 1]).components[1].share.interval() for _ in range(100)]
    inside = sum(low <= truth <= high for low, high in covered)
    assert inside >= 0.87 * 100  # 95 % ± 1.8 %, less the truth's own error


def test_dead_muted_and_absent() -> None:
    rng = np.random.default_rng(0)
    rewards = np.stack(
        [(rng.random((50, 8)) < 0.5) * 1.0, np.full((50, 8), 0.5), rng.random((50, 8)) * 0.02, rng.random((50, 8))], -1
    )
    rewards[::5, :, 3] = np.nan
    right, dead, muted, judge = of(rewards, [1, 1, 1, 1]).components
    assert (dead.dead, dead.muted, dead.share.value, dead.constant) == (True, False, 0, 0.5)
    assert muted.muted
    assert not muted.dead
    assert not right.muted
    assert not judge.muted
    assert judge.absent == pytest.approx(0.2)
    standardized = of(rewards, [1, 1, 1, 1], method="standardized_components").components
    assert not standardized[2].muted


@pytest.mark.parametrize(("share", "weight"), [(0.97, 0.2), (0.97, -0.2), (0.7, 0.02)])
def test_what_nearly_all_rollouts_have_is_met_and_not_muted(share: float, weight: float) -> None:
    """A format that is learned, a penalty that is hardly ever given, and one that some rollouts lack still."""
    rng = np.random.default_rng(2)
    second = ((rng.random((80, 8)) < share) == (weight > 0)) * 1.0
    rewards = np.stack([(rng.random((80, 8)) < 0.5) * 1.0, second], -1)
    part = of(rewards, [0.2, weight]).components[1]
    assert part.best == pytest.approx((second == (weight > 0)).mean())
    assert (part.met, part.muted) == ((True, False) if share > 0.9 else (False, part.muted))
    assert part.share.interval()[1] < 0.5


def test_dead_in_live_counts_live_groups_only() -> None:
    rewards = np.zeros((4, 2, 2))
    rewards[0, 0] = [1, 0]  # live by the first
    rewards[1, 0] = [1, 1]
    rewards[2, 0] = [0, 1]
    found = of(rewards, [1, 1])
    assert found.live == 3
    assert [one.dead_in_live.value for one in found.components] == pytest.approx([1 / 3, 1 / 3])


def test_collisions_are_counted_pair_by_pair() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.integers(0, 3, (30, 6, 2)) * 1.0
    found = of(rewards, [1, 1]).collisions
    pairs = [(a.tolist(), b.tolist()) for group in rewards for a, b in combinations(group, 2)]
    differ = [(a, b) for a, b in pairs if a != b]
    same = [(a, b) for a, b in differ if sum(a) == sum(b)]
    assert found.pairs == len(differ)
    assert found.share.value == pytest.approx(len(same) / len(differ))
    (first, second, times), *_ = found.examples
    assert sum(first) == sum(second)
    assert times == sum(sorted(pair) == sorted([list(first), list(second)]) for pair in same)
    assert of(rewards, [1, 0.9]).collisions.share.value == 0


def test_nothing_is_live() -> None:
    found = of(np.ones((5, 4, 2)), [1, 1])
    assert found.live == 0
    assert np.isnan(found.components[0].share.value)
    assert np.isnan(found.residual)


def test_constant_shares_are_the_mean_over_all_subsets() -> None:
    rng = np.random.default_rng(0)
    rewards = (rng.random((9, 6, 2)) < [0.8, 0.5]) * 1.0
    given = Components.of_groups("ab", rewards)
    for size in (2, 3, 6):
        subsets = [group[list(some)] for group in rewards for some in combinations(range(6), size)]
        single, every = component_weights.constant_shares(given, size)
        assert single == pytest.approx([np.mean([np.ptp(one[:, j]) == 0 for one in subsets]) for j in (0, 1)])
        assert every == pytest.approx(np.mean([not np.ptp(one, axis=0).any() for one in subsets]))
        assert every < min(single)


def test_errors_are_those_of_leaving_each_prompt_out() -> None:
    rewards = np.random.default_rng(0).random((12, 6, 2)) * [1, 0.3]
    whole = of(rewards, [1, 1]).components
    left = [of(np.delete(rewards, p, 0), [1, 1]).components for p in range(12)]
    for name in ("effective", "share", "variance_share", "per_unit"):
        values = np.array([getattr(one[1], name).value for one in left])
        expected = np.sqrt(11 / 12 * ((values - values.mean()) ** 2).sum())
        assert getattr(whole[1], name).se == pytest.approx(expected), name
