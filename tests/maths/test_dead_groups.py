"""Dead groups: estimates against enumeration of all outcomes and against known distributions of success rates."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from grposcope.core.errors import UserError
from grposcope.instruments.group_size.dead_groups_answer import _observed, _plugged_in, _subsets
from grposcope.instruments.group_size.rewards_alone import _resampling_cost
from grposcope.maths import dead_groups
from reference.enumerate import bernoulli, expectation


def binomials(p: float, group: int) -> np.ndarray:
    return np.array([math.comb(group, k) * p**k * (1 - p) ** (group - k) for k in range(group + 1)])


def beta_binomials(a: float, b: float, group: int) -> np.ndarray:
    def beta(x: float, y: float) -> float:
        return math.exp(math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y))

    return np.array([math.comb(group, k) * beta(k + a, group - k + b) / beta(a, b) for k in range(group + 1)])


@pytest.mark.parametrize(("p", "group", "size"), [(0.3, 6, 2), (0.3, 6, 4), (0.85, 5, 5), (0.5, 4, 3)])
def test_subsets_is_unbiased(p: float, group: int, size: int) -> None:
    """Its mean over all 2^G outcomes is the chance that `size` rollouts agree."""
    mean = 0.0
    for outcome in itertools.product((0, 1), repeat=group):
        k = sum(outcome)
        counts = np.bincount([k], minlength=group + 1)
        mean += p**k * (1 - p) ** (group - k) * _subsets(counts, size).value
    assert mean == pytest.approx(p**size + (1 - p) ** size, abs=1e-12)


@pytest.mark.parametrize(("a", "b", "group"), [(0.4, 0.7, 8), (2.0, 5.0, 6), (30.0, 10.0, 4), (0.1, 0.1, 16)])
@pytest.mark.parametrize("size", [None, 2, 12])
def test_prediction_is_exact_for_beta_prompts(a: float, b: float, group: int, size: int | None) -> None:
    """From the exact histogram of a very large sample, for the group size at hand and for others."""
    counts = np.round(beta_binomials(a, b, group) * 1e12).astype(np.int64)
    wanted = size or group
    exact = beta_binomials(a, b, wanted)
    assert dead_groups.predicted(counts, size).value == pytest.approx(exact[0] + exact[-1], abs=1e-9)


def test_prediction_for_prompts_that_are_alike() -> None:
    counts = np.round(binomials(0.3, 8) * 1e12).astype(np.int64)
    exact = 0.3**8 + 0.7**8
    assert dead_groups.predicted(counts).value == pytest.approx(exact, abs=1e-6)
    assert dead_groups.alike(counts).value == pytest.approx(exact, abs=1e-9)


def test_two_rollouts_predict_themselves() -> None:
    counts = np.array([40, 25, 35])
    assert dead_groups.predicted(counts).value == pytest.approx(_observed(counts).value, abs=1e-12)


def test_plugging_in_is_too_large_and_the_prediction_is_not() -> None:
    """Samples of 200 groups: the mean of the prediction is near the truth, that of the naive average is not."""
    rng, group = np.random.default_rng(0), 8
    exact = beta_binomials(2, 3, group)
    truth = exact[0] + exact[-1]
    samples = rng.multinomial(200, exact, size=2000)
    found = np.array([dead_groups.predicted(s).value for s in samples])
    naive = np.array([_plugged_in(s) for s in samples])
    assert abs(found.mean() - truth) < 4 * found.std() / np.sqrt(2000) + 0.002
    assert naive.mean() - truth > 0.03


def test_standard_errors_are_those_of_repetition() -> None:
    rng, group = np.random.default_rng(1), 8
    samples = rng.multinomial(300, beta_binomials(0.8, 1.2, group), size=1500)
    for statistic in (
        dead_groups.predicted,
        dead_groups.alike,
        _observed,
        lambda c: _subsets(c, 4),
    ):
        found = [statistic(s) for s in samples]
        spread = np.std([f.value for f in found])
        assert np.mean([f.se for f in found]) == pytest.approx(spread, rel=0.1)


def test_prompts_that_are_alike_are_the_lower_bound() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        counts = rng.multinomial(10**9, beta_binomials(*rng.uniform(0.2, 5, 2), 6))
        assert dead_groups.alike(counts).value <= dead_groups.predicted(counts).value + 1e-9
        assert dead_groups.alike(counts).value <= _observed(counts).value + 1e-4


@pytest.mark.parametrize("counts", [[50, 0, 0, 0, 0], [0, 0, 0, 0, 50], [25, 0, 0, 0, 25]])
def test_groups_that_are_all_dead(counts: list[int]) -> None:
    found = dead_groups.predicted(np.array(counts))
    assert found.value == pytest.approx(1.0, abs=1e-9)
    assert found.se == pytest.approx(0.0, abs=1e-6)


def test_what_cannot_be_told() -> None:
    assert math.isnan(dead_groups.predicted(np.array([3, 4])).value)
    assert dead_groups.predicted(np.array([3, 4])).flag
    assert math.isnan(dead_groups.predicted(np.array([1, 0, 0])).value)
    assert math.isnan(_observed(np.zeros(5, int)).value)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.8])
@pytest.mark.parametrize("group", [2, 4])
def test_chance_by_enumeration(p: float, group: int) -> None:
    dead = expectation(lambda r: float(len(set(r)) == 1), bernoulli(p), group)
    assert dead_groups.chance(p, group) == pytest.approx(dead)


@pytest.mark.parametrize("p", [0.1, 0.6])
def test_share_in_subsets_is_unbiased(p: float) -> None:
    """Expectation over all 2^6 outcomes of six rollouts is the dead chance of three."""
    found = expectation(lambda r: dead_groups.share_in_subsets([r], 3).value, bernoulli(p), 6)
    assert found == pytest.approx(dead_groups.chance(p, 3))


def test_observed_share_and_chance_if_alike() -> None:
    rewards = np.array([[1.0, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 1]])
    assert dead_groups.share(rewards).value == 0.5
    assert dead_groups.chance_if_alike(rewards) == pytest.approx((7 / 16) ** 4 + (9 / 16) ** 4)
    assert dead_groups.share_in_subsets(rewards, 4).value == 0.5
    assert math.isnan(dead_groups.chance_if_alike(rewards * 0.5))
    assert dead_groups.share_in_subsets(rewards, 5).flag


def test_masks_of_padded_and_of_ragged_groups_agree() -> None:
    rewards = np.array([[0.5, 0.5, np.nan], [0.0, 1.0, np.nan], [2.0, 2.0, 2.0], [2.0, 2.0, 2.1]])
    flat, sizes = rewards[~np.isnan(rewards)], (~np.isnan(rewards)).sum(1)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    assert dead_groups._is_dead(rewards).tolist() == [True, False, True, False]
    assert dead_groups.is_dead_ragged(flat, offsets).tolist() == [True, False, True, False]


def test_histogram_and_rewards_give_the_same_estimates() -> None:
    """The same groups as rewards (P, G) and as the histogram of their successes."""
    rewards = (np.random.default_rng(3).random((200, 6)) < np.linspace(0, 1, 200)[:, None]).astype(float)
    counts = np.bincount(rewards.sum(1).astype(int), minlength=7)
    for size in (2, 4, 6):
        pair = dead_groups.share_in_subsets(rewards, size), _subsets(counts, size)
        assert pair[0].value == pytest.approx(pair[1].value, abs=1e-12)
        assert pair[0].se == pytest.approx(pair[1].se, abs=1e-12)
    pair = dead_groups.expected(rewards, 16), dead_groups.predicted(counts, 16)
    assert pair[0].value == pytest.approx(pair[1].value, abs=1e-12)
    assert pair[0].se == pytest.approx(pair[1].se, abs=1e-12)
    assert dead_groups.chance_if_alike(rewards) == pytest.approx(dead_groups.alike(counts).value, abs=1e-12)


@pytest.mark.parametrize("group", [2, 3, 5])
def test_the_dead_fraction_is_that_of_all_subsets(group: int) -> None:
    rng = np.random.default_rng(0)
    logged = rng.choice([0.0, 0.5, 1.0], size=(6, 7), p=[0.6, 0.1, 0.3])
    logged[2, 5:] = np.nan
    logged[4] = 0.5
    shares = []
    for row in logged:
        subsets = list(itertools.combinations(row[~np.isnan(row)], group))
        shares.append(np.mean([len(set(s)) == 1 for s in subsets]))
    found = dead_groups.expected(logged, group)
    assert found.value == pytest.approx(np.mean(shares), abs=1e-12)
    assert found.se == pytest.approx(np.std(shares, ddof=1) / math.sqrt(6), rel=1e-9)
    assert dead_groups.live_per_rollout(logged, group).value == pytest.approx((1 - np.mean(shares)) / group)
    assert _resampling_cost(logged, group).value == pytest.approx(1 / (1 - np.mean(shares)))
    step = 1e-6  # the delta method: error of 1/(1 − dead) by its slope
    slope = (1 / (1 - found.value - step) - 1 / (1 - found.value)) / step
    assert _resampling_cost(logged, group).se == pytest.approx(found.se * slope, rel=1e-4)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_the_dead_fraction_is_unbiased_by_enumeration(p: float) -> None:
    total = sum(
        stats.binom.pmf(k, 6, p) * dead_groups.expected(np.array([[1.0] * k + [0.0] * (6 - k)]), 4).value
        for k in range(7)
    )
    assert total == pytest.approx(p**4 + (1 - p) ** 4, abs=1e-12)


def test_beyond_the_logged_group_the_beta_model_is_used_and_flagged() -> None:
    rng = np.random.default_rng(1)
    rates = rng.beta(0.8, 1.6, size=20_000)
    logged = (rng.random((20_000, 6)) < rates[:, None]).astype(float)
    found = dead_groups.expected(logged, 16)
    truth, _ = integrate.quad(lambda p: (p**16 + (1 - p) ** 16) * stats.beta.pdf(p, 0.8, 1.6), 0, 1)
    assert found.value == pytest.approx(truth, abs=4 * found.se)
    assert found.se < 0.01
    assert found.flag == dead_groups.EXTRAPOLATED


def test_the_beta_model_meets_its_ends() -> None:
    split = np.repeat([[1.0] * 4, [0.0] * 4], 5, axis=0)
    assert dead_groups.expected(split, 32).value == 1.0
    half = np.tile([1.0, 1.0, 0.0, 0.0], (5, 1))  # no more spread than one success rate gives
    assert dead_groups.expected(half, 8).value == pytest.approx(2 * 0.5**8)
    assert math.isinf(_resampling_cost(split, 8).value)


def test_graded_rewards_say_nothing_beyond_their_group() -> None:
    found = dead_groups.expected(np.random.default_rng(2).random((5, 4)), 8)
    assert math.isnan(found.value)
    assert "more than two values" in found.flag


def test_one_reward_value_says_nothing_beyond_its_group() -> None:
    assert dead_groups.expected(np.ones((3, 4)), 4).value == 1.0
    assert math.isnan(dead_groups.expected(np.ones((3, 4)), 8).value)


def test_bad_logs_are_refused() -> None:
    with pytest.raises(UserError, match="group of 1"):
        dead_groups.expected(np.ones((2, 4)), 1)
    with pytest.raises(UserError, match="no logged group"):
        dead_groups.expected(np.ones((2, 1)), 2)


def test_large_groups_are_those_of_the_product() -> None:
    """Beyond LARGE by gamma functions; a group of any size takes no time."""
    first, second = np.array([0.3, 0.5, 0.9, 0.01]), np.array([0.12, 0.25, 0.85, 0.0005])
    size = dead_groups.LARGE + 1
    product = dead_groups._beta_chance(first, second, dead_groups.LARGE)
    np.testing.assert_allclose(dead_groups._beta_chance(first, second, size), product, rtol=1e-2, atol=1e-300)
    weight = (first - second) / np.clip(second - first**2, 1e-300, None)
    exact = [math.prod((w * m + j) / (w + j) for j in range(1, size)) * m
             + math.prod((w * (1 - m) + j) / (w + j) for j in range(1, size)) * (1 - m)
             for w, m in zip(weight[[0, 2, 3]], first[[0, 2, 3]], strict=True)]  # fmt: skip
    np.testing.assert_allclose(dead_groups._beta_chance(first, second, size)[[0, 2, 3]], exact, rtol=1e-9)
    assert (dead_groups._beta_chance(first, second, 10**14) < 1).all()
