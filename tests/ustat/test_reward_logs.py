"""Reward logs alone: dead groups by enumeration, the beta model where it is exact, silence where nothing is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from grposcope.errors import UserError
from grposcope.ustat import reward_logs as logs


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
    found = logs.dead_fraction(logged, group)
    assert found.value == pytest.approx(np.mean(shares), abs=1e-12)
    assert found.se == pytest.approx(np.std(shares, ddof=1) / math.sqrt(6), rel=1e-9)
    assert logs.live_per_rollout(logged, group).value == pytest.approx((1 - np.mean(shares)) / group)
    assert logs.resampling_cost(logged, group).value == pytest.approx(1 / (1 - np.mean(shares)))
    step = 1e-6  # the delta method: error of 1/(1 − dead) by its slope
    slope = (1 / (1 - found.value - step) - 1 / (1 - found.value)) / step
    assert logs.resampling_cost(logged, group).se == pytest.approx(found.se * slope, rel=1e-4)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_the_dead_fraction_is_unbiased_by_enumeration(p: float) -> None:
    total = sum(
        stats.binom.pmf(k, 6, p) * logs.dead_fraction(np.array([[1.0] * k + [0.0] * (6 - k)]), 4).value
        for k in range(7)
    )
    assert total == pytest.approx(p**4 + (1 - p) ** 4, abs=1e-12)


def test_beyond_the_logged_group_the_beta_model_is_used_and_flagged() -> None:
    rng = np.random.default_rng(1)
    rates = rng.beta(0.8, 1.6, size=20_000)
    logged = (rng.random((20_000, 6)) < rates[:, None]).astype(float)
    found = logs.dead_fraction(logged, 16)
    truth, _ = integrate.quad(lambda p: (p**16 + (1 - p) ** 16) * stats.beta.pdf(p, 0.8, 1.6), 0, 1)
    assert found.value == pytest.approx(truth, abs=4 * found.se)
    assert found.se < 0.01
    assert found.flag == logs.EXTRAPOLATED


def test_the_beta_model_meets_its_ends() -> None:
    split = np.repeat([[1.0] * 4, [0.0] * 4], 5, axis=0)
    assert logs.dead_fraction(split, 32).value == 1.0
    half = np.tile([1.0, 1.0, 0.0, 0.0], (5, 1))  # no more spread than one success rate gives
    assert logs.dead_fraction(half, 8).value == pytest.approx(2 * 0.5**8)
    assert math.isinf(logs.resampling_cost(split, 8).value)


def test_graded_rewards_say_nothing_beyond_their_group() -> None:
    found = logs.dead_fraction(np.random.default_rng(2).random((5, 4)), 8)
    assert math.isnan(found.value)
    assert "more than two values" in found.flag


def test_one_reward_value_says_nothing_beyond_its_group() -> None:
    assert logs.dead_fraction(np.ones((3, 4)), 4).value == 1.0
    assert math.isnan(logs.dead_fraction(np.ones((3, 4)), 8).value)


def test_bad_logs_are_refused() -> None:
    with pytest.raises(UserError, match="group of 1"):
        logs.dead_fraction(np.ones((2, 4)), 1)
    with pytest.raises(UserError, match="no logged group"):
        logs.dead_fraction(np.ones((2, 1)), 2)
