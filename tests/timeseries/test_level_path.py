"""The level and its future: closed forms of single members, and what the average over them must not depend on."""

from __future__ import annotations

import numpy as np
import pytest

from grposcope.timeseries import level_path
from grposcope.timeseries.forecast_prior import LEARNED
from grposcope.timeseries.level_path import AGE, DOUBT, Prior

N = 40
SHARE = np.arange(1.0, N + 1) / N
LATER = np.array([1.5, 2.0])
REWARD = 2 * SHARE**0.5 + np.random.default_rng(0).standard_normal(N)


def single(shape: tuple[str, float], rise: float, wander: float) -> Prior:
    """A prior with one member."""
    return Prior(1.0, 1.0, 1.0, shapes=(shape,), rises=(rise,), wanders=(wander,))


def test_a_member_without_wandering_is_bayesian_regression() -> None:
    """y = a + b f + ε with b ~ N(0, (2σ)²): a closed-form posterior of the level at any time."""
    found = level_path.members(SHARE, REWARD, LATER, single(("power", 0.5), 2.0, 0.0))
    noise = level_path.noise_variances(REWARD)
    design = np.column_stack([np.ones(N), SHARE**0.5])
    precision = design.T @ (design / noise[:, None]) + np.diag([0.0, 1 / (4 * noise[-1])])
    best = np.linalg.solve(precision, design.T @ (REWARD / noise))
    ahead = np.column_stack([np.ones(3), np.append(1.0, LATER) ** 0.5])
    np.testing.assert_allclose(found.level[0], ahead @ best, rtol=1e-8)
    squares = (REWARD / noise) @ REWARD - best @ precision @ best
    covariance = np.linalg.inv(precision) * (DOUBT + squares) / (DOUBT + N - 1)
    np.testing.assert_allclose(found.variance[0], np.diag(ahead @ covariance @ ahead.T), rtol=1e-8)


def test_a_level_that_wanders_is_interpolated_and_stays() -> None:
    """With far more wandering than noise the level is the reward, and its variance ahead that of a Brownian motion."""
    found = level_path.members(SHARE, REWARD, LATER, single(("none", 0.0), 1.0, 1e4))
    np.testing.assert_allclose(found.level, REWARD[-1], rtol=1e-3)
    ratio = found.variance[0, 1:] / (LATER**AGE - 1)
    assert ratio[0] == pytest.approx(ratio[1], rel=1e-3)


def test_members_are_weighed_by_their_tempered_likelihood() -> None:
    prior = Prior(
        temper=0.4, keep=0.5, spread=2.0, shapes=(("none", 0.0), ("power", 0.5)), rises=(1.0,), wanders=(0.3,)
    )
    found = level_path.members(SHARE, REWARD, LATER, prior)
    odds = np.exp(0.4 * (found.likelihood[0] - found.likelihood[1]))
    weight = np.array([odds, 1.0]) / (1 + odds)
    level = found.level[:, :1] + 0.5 * (found.level - found.level[:, :1])
    averaged = found.average(prior)
    assert averaged.now == pytest.approx(weight @ level[:, 0])
    np.testing.assert_allclose(averaged.mean, weight @ level[:, 1:])
    variance = weight @ (found.variance[:, 1:] + (found.level[:, 1:] - averaged.mean) ** 2)
    np.testing.assert_allclose(averaged.se, 2 * np.sqrt(variance))
    random = np.random.default_rng(0)
    member = random.choice(2, 100_000, p=weight)
    last = found.level[member, -1] + 2 * np.sqrt(found.variance[member, -1]) * random.standard_normal(100_000)
    assert averaged.probability(0.0) == pytest.approx(np.mean(last > averaged.now), abs=0.01)
    assert averaged.probability(-0.3, 0.5) == pytest.approx(np.mean(np.abs(last - averaged.now - 0.1) < 0.4), abs=0.01)
    assert averaged.change(0.1) == pytest.approx(np.quantile(last, 0.1) - averaged.now, abs=0.02)


def test_noise_that_fades_is_followed() -> None:
    """The quiet end decides where the level is, although the loud beginning has as many rewards."""
    random = np.random.default_rng(2)
    loud = np.where(SHARE < 0.5, 3.0, 0.03)
    noise = np.mean([level_path.noise_variances(loud * random.standard_normal(N)) for _ in range(50)], axis=0)
    assert noise[:10].mean() == pytest.approx(9, rel=0.3)
    assert noise[-10:].mean() < 1.5
    known = level_path.noise_variances(loud * random.standard_normal(N), sampling=0.0009)
    assert known[-10:].mean() == pytest.approx(0.0009, rel=1)
    y = np.where(SHARE < 0.5, 1.0, 2.0) + loud * random.standard_normal(N)
    assert level_path.path(SHARE, y, LATER, LEARNED).now == pytest.approx(2.0, abs=0.05)


def test_shift_and_scale_carry_over() -> None:
    found = level_path.path(SHARE, REWARD, LATER, LEARNED)
    moved = level_path.path(SHARE, 5 + 2 * REWARD, LATER, LEARNED)
    np.testing.assert_allclose(moved.mean, 5 + 2 * found.mean, rtol=1e-6)
    np.testing.assert_allclose(moved.se, 2 * found.se, rtol=1e-6)


def test_a_long_run_counts_as_means_of_neighbours() -> None:
    random = np.random.default_rng(1)
    y = 3 * np.repeat(SHARE, 12) + random.standard_normal(12 * N)
    found = level_path.path(np.arange(1.0, 12 * N + 1) / (12 * N), y, LATER, LEARNED)
    assert found.now == pytest.approx(3.0, abs=0.5)
    assert found.se[0] < 1
