"""Distances against definitions and by listing every completion; standard errors against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.instruments.offpolicy import distance
from grposcope.instruments.offpolicy.distance import _by_length, of
from grposcope.maths.corrections import ALL
from grposcope.maths.importance import Ratios
from reference.offpolicy_policies import World


def test_k1_and_k3_are_unbiased_by_listing_every_completion() -> None:
    """Sums over a rollout's tokens have the mean KL(μ‖π), under the sampler."""
    world = World(apart=0.8)
    for x in range(world.prompts):
        chances, whole = world.sampled[x], np.array([one.sum() for one in world.log_ratios[x]])
        due = -(chances @ whole)
        k3 = chances @ np.array([(np.exp(one) - 1 - one).sum() for one in world.log_ratios[x]])
        assert due > 0.01
        assert k3 == pytest.approx(due)


def test_distance_is_its_definition() -> None:
    rng = np.random.default_rng(0)
    logs = [rng.normal(0, 0.2, n) for n in (3, 5, 2, 7)]
    found = distance.measure(Ratios.of(logs), np.array([0, 0, 1, 1]))
    flat, weights = np.concatenate(logs), np.exp([one.sum() for one in logs])
    assert found.k1.value == pytest.approx(-flat.mean())
    assert found.k3.value == pytest.approx((np.exp(flat) - 1 - flat).mean())
    assert found.chi2.value == pytest.approx((weights**2).mean() - 1)
    assert found.ess.value == pytest.approx(weights.sum() ** 2 / (4 * (weights**2).sum()))
    assert found.ess_token == pytest.approx(np.exp(flat).sum() ** 2 / (17 * np.exp(2 * flat).sum()))
    assert found.above == pytest.approx((flat > 1e-5).mean())


def test_standard_error_of_ess_is_the_spread_over_batches() -> None:
    rng = np.random.default_rng(1)
    found = [distance._ess(np.exp(rng.normal(0, 0.3, 200)), np.arange(200)) for _ in range(300)]
    spread = np.std([one.value for one in found])
    assert np.mean([one.se for one in found]) == pytest.approx(spread, rel=0.2)


@pytest.mark.parametrize(("truth", "least"), [(0.95, 0.85), (0.6, 0.88), (0.4, 0.85)])
def test_the_interval_of_ess_holds_whatever_the_estimate_is(truth: float, least: float) -> None:
    """Lognormal weights e^(sz − s²/2), whose ESS/n is e^(−s²): also where a batch missed the tail."""
    rng, prompts, scale = np.random.default_rng(0), np.repeat(np.arange(32), 8), math.sqrt(-math.log(truth))
    held = []
    for _ in range(120):
        normal = math.sqrt(0.3) * rng.normal(size=(32, 1)) + math.sqrt(0.7) * rng.normal(size=(32, 8))
        low, high = distance._ess_interval(np.exp(scale * normal - scale**2 / 2).ravel(), prompts, grid=200)
        held.append(low <= truth <= high)
    assert np.mean(held) > least


def test_one_completion_with_most_of_the_weight_leaves_the_interval_open() -> None:
    low, high = distance._ess_interval(np.r_[100.0, np.ones(30)], np.arange(31))
    assert low == 0
    assert high == pytest.approx(distance._ess(np.r_[100.0, np.ones(30)], np.arange(31)).value)
    assert math.isnan(distance._ess_interval(np.ones(4), np.array([0, 0, 1, 1]))[0])
    assert distance._ess_interval(np.ones(12), np.arange(12)) == (1.0, 1.0)


def test_ess_of_token_corrections_is_of_tokens() -> None:
    """Ratios that differ within rollouts and not between them."""
    found = of(ALL[1], Ratios.of([np.log([0.5, 1.5])] * 30), np.arange(30))
    assert found.ess == pytest.approx(1 / 1.25)


def test_standard_error_of_ess_leaves_out_one_prompt_at_a_time() -> None:
    """√((P − 1)/P Σ (x − x̄)²) of the ESS without each of five prompts, of one to five rollouts each."""
    rng = np.random.default_rng(2)
    prompts = np.repeat(np.arange(5), [1, 2, 3, 4, 5])
    weights = np.exp(rng.normal(0, 0.3, 15))
    left_out = [distance.effective(weights[prompts != one]) for one in range(5)]
    due = math.sqrt(4 / 5 * sum((one - np.mean(left_out)) ** 2 for one in left_out))
    assert distance._ess(weights, prompts).se == pytest.approx(due)


def test_mismatch_and_staleness_are_the_exact_parts_of_the_divergence() -> None:
    """KL(μ‖π) = KL(μ‖π_old) + E_μ log(π_old/π), by listing every completion; the estimates add up to the last digit."""
    world, other = World(apart=0.8), World(apart=0.8, seed=7)
    for x in range(world.prompts):
        chances, whole = world.sampled[x], np.array([one.sum() for one in world.log_ratios[x]])
        old = np.log(other.trained[x]) - np.log(chances)  # log π_old/μ, π_old the trainer of another world
        assert chances @ -whole == pytest.approx(chances @ -old + chances @ (old - whole))
        assert chances @ -old > 0
    rng = np.random.default_rng(3)
    logs = [rng.normal(0, 0.2, n) for n in (3, 5, 2, 7)]
    mismatch = [rng.normal(0, 0.1, len(one)) for one in logs]
    prompts = np.array([0, 0, 1, 1])
    ratios = Ratios.of(logs)
    parts, far = distance.split(ratios, mismatch, prompts), distance.measure(ratios, prompts)
    flat = np.concatenate(mismatch)
    assert parts.mismatch.value == pytest.approx(-flat.mean())
    assert parts.mismatch_k3.value == pytest.approx((np.exp(flat) - 1 - flat).mean())
    assert parts.mismatch.value + parts.stale.value == pytest.approx(far.k1.value, rel=1e-12)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([1, 2, 3, 4, 9, 9], (1.5, 3.5, 9)),  # a third share the greatest length
        ([1, 2, 9, 9, 9, 9], (1.5, math.nan, 9)),  # two thirds do
        ([1, 1, 9, 9], (1, math.nan, 9)),
        ([1, 2, 3, 4, 5, 6], (1.5, 3.5, 5.5)),
    ],
)
def test_thirds_by_length_keep_rollouts_of_one_length_together(
    lengths: list[int], expected: tuple[float, float, float]
) -> None:
    thirds, shares = _by_length(np.array(lengths, float), np.array(lengths))
    assert thirds == pytest.approx(expected, nan_ok=True)
    assert shares is not None
    assert sum(shares) == pytest.approx(1)
    assert _by_length(np.ones(3), np.array([4, 4, 4])) == (None, None)
