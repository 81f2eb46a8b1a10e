"""Rank two: the identity (1/G) Σ A s = σ_K (s̄₊ − s̄₋) on a model's own gradients, per layer and in total."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from geometry_models import batch, build, one_by_one

from grposcope.instruments.gradient import probe
from grposcope.instruments.gradient.probe import _means, _share_in_span, _two_means
from grposcope.lab.objectives import advantages, recipes


@pytest.mark.parametrize("wins", [[1, 0], [1, 0, 0, 1], [0, 0, 0, 0, 0, 1, 0, 0]])
def test_the_gradient_is_the_scaled_difference_of_the_class_means_in_every_layer(wins: list[int]) -> None:
    rollouts = batch(prompts=1, group=len(wins))
    scores, r = one_by_one(build("llama"), rollouts), torch.tensor([wins], dtype=torch.float64)
    group, successes = len(wins), sum(wins)
    sigma = math.sqrt(successes / group * (1 - successes / group))
    scales = {advantages.centered: sigma**2, lambda x: advantages.standardized(x, ddof=0, eps=0.0): sigma}
    for advantage, scale in scales.items():
        a = advantage(r)[0]
        for name in scores[0]:
            gradient = sum(float(a[i]) * scores[i][name] for i in range(group)) / group
            plus = sum(scores[i][name] for i in range(group) if wins[i]) / successes
            minus = sum(scores[i][name] for i in range(group) if not wins[i]) / (group - successes)
            torch.testing.assert_close(gradient, scale * (plus - minus), rtol=1e-10, atol=1e-12)


def gram_of(scores: np.ndarray) -> np.ndarray:
    return scores @ scores.T


def test_shares_against_projection() -> None:
    random = np.random.default_rng(0)
    scores, rewards = random.normal(size=(6, 40)), np.array([0.1, 0.9, 0.4, 0.4, 1.0, 0.0])
    u = rewards - rewards.mean()
    gradient = u @ scores
    basis = _two_means(rewards) @ scores
    projected = basis.T @ np.linalg.lstsq(basis.T, gradient, rcond=None)[0]
    share = _share_in_span(u, _two_means(rewards), gram_of(scores))
    assert share == pytest.approx(projected @ projected / (gradient @ gradient))
    assert share < 0.99
    # a class per distinct reward always holds a gradient whose weight depends on the reward alone
    assert _share_in_span(u, _means(rewards), gram_of(scores)) == pytest.approx(1)


def test_binary_rewards_are_held_completely_and_uneven_reductions_are_not() -> None:
    random = np.random.default_rng(1)
    scores, rewards = random.normal(size=(5, 40)), np.array([0.0, 1, 1, 0, 1])
    u = rewards - rewards.mean()
    assert _share_in_span(u, _two_means(rewards), gram_of(scores)) == pytest.approx(1)
    uneven = u / np.array([1.0, 2, 3, 4, 5])
    assert _share_in_span(uneven, _two_means(rewards), gram_of(scores)) < 0.95


def test_a_reward_at_the_mean_counts_as_a_failure() -> None:
    assert _two_means(np.array([0.0, 0.5, 1.0])).tolist() == [[0, 0, 1], [0.5, 0.5, 0]]


def test_reduced_classes_hold_binary_gradients_and_not_graded_ones() -> None:
    """GRPO weighs rollouts by 1/length: c_i A_i s_i is held by the class means of c_i s_i if A takes two values."""
    model, rollouts = build("llama"), batch(prompts=1, group=6)
    graded = replace(rollouts, rewards=torch.tensor([[0.0, 1.0, 0.3, 0.8, 0.1, 0.6]], dtype=torch.float64))
    for one, held in ((rollouts, True), (graded, False)):
        shares = probe.probe(model, one, recipes.GRPO).class_means()
        assert (shares.reduced.value > 1 - 1e-9) is held
        assert shares.plain.value < 1 - 1e-6


def test_no_share_of_a_zero_gradient() -> None:
    assert math.isnan(_share_in_span(np.zeros(3), np.eye(3), np.eye(3)))
