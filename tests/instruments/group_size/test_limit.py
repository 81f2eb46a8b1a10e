"""The limit law: Lyapunov's equation, and the weighted χ² against exact cases, a slow series and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from grposcope.core.errors import UserError
from grposcope.instruments.group_size import limit
from reference.ustat_policies import SmallPolicy, leave_one_out
from reference.ustat_series import ruben


@pytest.mark.parametrize("degrees", [1, 2, 3, 10, 50, 300])
def test_equal_weights_are_a_scaled_chi_square(degrees: int) -> None:
    probabilities = [1e-12, 1e-6, 0.01, 0.3, 0.5, 0.9, 0.999, 1 - 1e-9]
    x = 2.5 * stats.chi2.ppf(probabilities, degrees)
    assert limit.cdf(x, [2.5] * degrees) == pytest.approx(probabilities, abs=1e-11)


def test_pairs_of_weights_are_sums_of_exponentials() -> None:
    scales, x = np.array([5.0, 1.0, 0.2, 1e-3]), np.geomspace(1e-3, 100, 30)
    expected = sum(np.prod([a / (a - b) for b in scales if b != a]) * -np.expm1(-x / (2 * a)) for a in scales)
    assert limit.cdf(x, np.repeat(scales, 2)) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("weights", [[1.0, 0.4], [3.0, 2.0, 0.5], [1.0, 0.9, 0.2, 0.15, 0.1]])
def test_unequal_weights_agree_with_rubens_series(weights: list[float]) -> None:
    for x in (0.05, 0.5, 2.0, 8.0, 30.0):
        assert float(limit.cdf(x, weights)) == pytest.approx(ruben(x, weights), abs=1e-10)


def test_quantiles_invert_the_distribution_and_scale() -> None:
    weights = np.geomspace(1e-8, 1, 12)
    for p in (1e-6, 0.05, 0.5, 0.95, 0.999):
        x = limit.quantile(p, weights)
        assert float(limit.cdf(x, weights)) == pytest.approx(p, rel=1e-6)
        assert limit.quantile(p, 7 * weights) == pytest.approx(7 * x, rel=1e-6)
    assert limit.quantile(0.95, [1.0]) == pytest.approx(stats.chi2.ppf(0.95, 1), rel=1e-9)
    assert limit.cdf([-1.0, 0.0], [1.0]).tolist() == [0.0, 0.0]


def test_the_law_agrees_with_simulation() -> None:
    weights = np.array([2.0, 0.7, 0.05])
    draws = np.random.default_rng(0).normal(size=(4_000, 3)) ** 2 @ weights
    assert stats.kstest(draws, lambda x: limit.cdf(x, weights)).pvalue > 0.01
    assert stats.kstest(1.15 * draws, lambda x: limit.cdf(x, weights)).pvalue < 0.01  # it would notice 15 %


def test_the_covariance_solves_its_equation_and_the_scalar_case() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 4, 4))
    hessian, noise, step = a @ a.T + np.eye(4), b @ b.T, 1.3
    found = limit.covariance(hessian, noise, step)
    drift = step * hessian - np.eye(4) / 2
    assert drift @ found + found @ drift == pytest.approx(step**2 * noise, abs=1e-12)
    scalar = limit.covariance(np.array([[2.0]]), np.array([[3.0]]), 1.5)
    assert float(scalar[0, 0]) == pytest.approx(1.5**2 * 3 / (2 * 1.5 * 2 - 1))


def test_weights_sum_to_the_mean_of_twice_the_gap() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 3, 3))
    hessian, spread = a @ a.T, b @ b.T
    found = limit.weights(hessian, spread)
    assert found.sum() == pytest.approx(np.trace(hessian @ spread))
    assert found.tolist() == sorted(found, reverse=True)


@pytest.mark.parametrize(("prompts", "group"), [(1, 2), (1, 5), (2, 3)])
def test_the_noise_matrix_is_the_gradients_covariance(prompts: int, group: int) -> None:
    """C from Σ₁/G + Δ/(G(G−1)), as matrices, equals the enumerated covariance of the leave-one-out gradient."""
    policy = SmallPolicy.random(3, prompts=2, answers=3)
    p, s, r, g = policy.chances, policy.scores, policy.rewards, policy.gradients
    value = (p * r).sum(-1, keepdims=True)
    oracle = np.einsum("xa,xad,xae->de", p * (r - value) ** 2, s, s) / 2 - np.einsum("xd,xe->de", g, g) / 2
    variance = (p * (r - value) ** 2).sum(-1)
    residual = np.einsum("x,xa,xad,xae->de", variance, p, s, s) / 2 + np.einsum("xd,xe->de", g, g) / 2
    across = np.einsum("xd,xe->de", g, g) / 2 - np.outer(g.mean(0), g.mean(0))
    chance, gradient = policy.outcomes(leave_one_out, group)
    off = gradient - g.mean(0)
    enumerated = np.einsum("n,nd,ne->de", chance, off, off) / prompts
    assert limit.noise(across, oracle, residual, prompts, group) == pytest.approx(enumerated, abs=1e-12)


def test_no_law_where_the_step_is_too_small_or_there_is_no_optimum() -> None:
    with pytest.raises(UserError, match=r"use a step above 0\.25"):
        limit.covariance(np.diag([2.0, 5.0]), np.eye(2), 0.2)
    with pytest.raises(UserError, match="not positive definite"):
        limit.covariance(np.diag([-1.0, 5.0]), np.eye(2), 1.0)
    with pytest.raises(UserError, match="not all 0"):
        limit.cdf(1.0, [0.0, 0.0])
    with pytest.raises(UserError, match="between 0 and 1"):
        limit.quantile(1.0, [1.0])
    assert math.isfinite(limit.quantile(0.5, [0.0, 1.0]))
