"""The best baseline: against enumeration on a softmax bandit, where everything is known, and on planted data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient.probe import _of_prompt, _pooled_baseline, _variance_at_best

LOGITS = np.array([0.3, -0.8, 1.1])
REWARDS = np.array([1.0, 0.0, 0.4])
P = np.exp(LOGITS) / np.exp(LOGITS).sum()
SCORES = np.eye(3) - P  # ∇ log softmax, a row per arm
NORMS = (SCORES**2).sum(1)
V, G = P @ REWARDS, (P * REWARDS) @ SCORES


def test_the_best_constant_has_least_variance_and_the_excess_is_what_is_claimed() -> None:
    def variance(b: float) -> float:
        return float(P @ ((REWARDS - b) ** 2 * NORMS) - G @ G)

    best = P @ (REWARDS * NORMS) / (P @ NORMS)
    assert variance(best) < min(variance(best + 1e-3), variance(best - 1e-3))
    gap = (P @ (REWARDS * NORMS) - V * (P @ NORMS)) / (P @ NORMS)
    assert best - V == pytest.approx(gap)
    assert variance(V) - variance(best) == pytest.approx(gap**2 * (P @ NORMS))
    assert variance(0) - variance(best) == pytest.approx(best**2 * (P @ NORMS))


def sampled(prompts: int, group: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    arms = random.choice(3, (prompts, group), p=P)
    s = SCORES[arms.ravel()]
    return REWARDS[arms], s @ s.T


def test_estimates_on_many_pulls_agree_with_the_truth_within_their_errors() -> None:
    best = P @ (REWARDS * NORMS) / (P @ NORMS)
    rest = P @ ((REWARDS - best) ** 2 * NORMS) - G @ G
    measured, each = _pooled_baseline(*sampled(150, 8))
    assert len(each) == 150

    def agrees(estimate: Estimate, truth: float, slack: float = 0.0) -> None:
        assert estimate.se > 0
        assert abs(estimate.value - truth) < 4 * estimate.se + slack

    one = _of_prompt(*sampled(1, 400, seed=1)[0:1][0:1][0], sampled(1, 400, seed=1)[1])
    agrees(one.covariance, best - V)
    agrees(one.optimal, best)
    agrees(one.mean, V)
    # ratios of a few rollouts are biased by O(1/G), which the pooled errors do not show
    agrees(measured.covariance, best - V, 0.03)
    agrees(measured.excess_mean, (best - V) ** 2 * (P @ NORMS) / rest, 0.1)
    assert "lies" in one.verdict or "does not differ measurably" in one.verdict


def test_the_noise_of_a_square_is_no_excess() -> None:
    """With Cov/E k = 0.3 ± 0.2 the excess is (0.3² − 0.2²) E k, and the variance left is so much less."""
    rewards, gram = sampled(1, 9)
    without = _variance_at_best(rewards[0], gram, Estimate(0.0, 0.0, 9))
    left = _variance_at_best(rewards[0], gram, Estimate(0.3, 0.2, 9))
    assert without - left == pytest.approx(0.05 * np.diag(gram).mean())


@pytest.mark.slow
def test_prompts_with_equal_rewards_count_in_the_average() -> None:
    """Rewards 1 with chance 0.1, ‖s‖² = 1 + 2r: Cov/E k = 0.18/1.2; mixed groups alone would give far more."""
    random = np.random.default_rng(0)
    measured, alone = [], []
    for _ in range(60):
        rewards = (random.random((40, 8)) < 0.1).astype(float)
        gram = np.diag(1 + 2 * rewards.ravel())
        mixed = np.ptp(rewards, axis=1) > 0
        rows = np.repeat(mixed, 8)
        measured.append(_pooled_baseline(rewards, gram)[0].covariance.value)
        alone.append(_pooled_baseline(rewards[mixed], gram[np.ix_(rows, rows)])[0].covariance.value)
    truth, one, other = 0.18 / 1.2, Estimate.mean(measured), Estimate.mean(alone)
    assert abs(one.value - truth) < 4 * one.se + 0.005
    assert other.value > truth + 0.05


def test_jackknife_errors_cover() -> None:
    """The estimate lies within 1.96 standard errors of the truth in about 95 % of samples."""
    best = P @ (REWARDS * NORMS) / (P @ NORMS)
    inside = 0
    for seed in range(120):
        r, k = sampled(1, 30, seed)
        gap = _of_prompt(r[0], k).covariance
        inside += abs(gap.value - (best - V)) < 1.96 * gap.se
    assert 0.87 < inside / 120 <= 1


@pytest.mark.parametrize("lengths", ["equal", "failures long"])
def test_verdict_on_planted_score_norms(lengths: str) -> None:
    random = np.random.default_rng(0)
    rewards = random.integers(0, 2, (12, 16)).astype(float)
    size = np.ones((12, 16)) if lengths == "equal" else np.where(rewards > 0, 1.0, 2.0)
    scores = random.normal(size=(12 * 16, 300)) * size.reshape(-1, 1)
    measured, _ = _pooled_baseline(rewards, scores @ scores.T)
    expected = "does not differ measurably" if lengths == "equal" else "below the group mean"
    assert expected in measured.verdict
    if lengths == "equal":
        assert abs(measured.excess_mean.value) < 0.01
    else:  # V = ½, E k = 2.5·d, Cov = −¾·d: b* = ½ − 0.3
        assert measured.optimal.value == pytest.approx(0.2, abs=0.04)


def test_nothing_is_claimed_without_data() -> None:
    for rewards, reason in ((np.ones(8), "equal"), (np.array([0.0, 1, 1]), "at least 4")):
        measured = _of_prompt(rewards, np.eye(len(rewards)))
        assert math.isnan(measured.optimal.value)
        assert reason in measured.covariance.flag
        assert measured.verdict.startswith("cannot tell")
    measured, _ = _pooled_baseline(np.ones((3, 4)), np.eye(12))
    assert "0 of 3 groups" in measured.covariance.flag


def test_what_the_best_constant_saves_is_a_share_of_the_variance_at_the_value() -> None:
    """(Σ₁ at V less the variance at b*) ÷ Σ₁, by enumeration of the arms; 0 where score norms do not vary."""
    best = P @ (REWARDS * NORMS) / (P @ NORMS)
    at = {b: P @ ((REWARDS - b) ** 2 * NORMS) - G @ G for b in (V, best)}
    truth = (at[V] - at[best]) / at[V]
    measured = [_pooled_baseline(*sampled(150, 8, seed))[0].saving for seed in range(4)]
    mean = np.mean([one.value for one in measured])
    assert truth > 0.04
    assert abs(mean - truth) < 4 * np.mean([one.se for one in measured]) / 2
    equal = _pooled_baseline(sampled(60, 8)[0], np.eye(480))[0]
    assert abs(equal.saving.value) < 0.01
