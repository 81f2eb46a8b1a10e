"""Forecasts: calibration on simulated runs, what they gain on the last level, invariances, honest refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.dynamics import fit
from grposcope.errors import UserError
from grposcope.timeseries import state_space
from grposcope.timeseries.model_comparison import last_level
from grposcope.timeseries.state_space import Prior

T = np.arange(1.0, 201.0)


def runs(kind: str, count: int, seed: int = 0) -> list[np.ndarray]:
    """Synthetic rewards of 200 steps with unit noise: rising and saturating, flat, or wandering."""
    random = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        noise = random.standard_normal(200)
        if kind == "rise":
            height, tau = random.uniform(1, 6), random.uniform(40, 300)
            out.append(height * (1 - np.exp(-T / tau)) + noise)
        elif kind == "flat":
            out.append(noise)
        else:
            out.append(np.cumsum(0.3 * random.standard_normal(200)) + noise)
    return out


def rmse(a: np.ndarray | float, b: np.ndarray) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2)))


@pytest.mark.parametrize(("kind", "gain", "least"), [("rise", 0.95, 0.88), ("flat", 1.0, 0.88), ("wander", 1.15, 0.7)])
def test_beats_the_last_level_and_covers(kind: str, gain: float, least: float) -> None:
    """A level that wanders as fast late as early is not what runs do, and is covered less."""
    ratios, covered = [], []
    for y in runs(kind, 12):
        seen = fit.forecast(T[:80], y[:80], T[80:])
        ratios.append(rmse(seen.mean, y[80:]) / rmse(last_level(y[:80]), y[80:]))
        covered.append(((seen.low <= y[80:]) & (y[80:] <= seen.high)).mean())
    assert np.exp(np.mean(np.log(ratios))) < gain
    assert least < np.mean(covered) < 0.99


def test_the_filter_is_bayesian_regression() -> None:
    """Without wandering a member is a linear model y = l₀ + b f + ε with a normal prior: a closed-form posterior."""
    y = runs("rise", 1)[0][:60]
    steps = T[:60]
    prior = Prior(powers=(0.5,), decays=(), roughness=(0.0,), spreads=((2.0, 0.0),), still=-1e9)
    found = state_space.posterior(steps, y, 1.0, prior)
    share = steps / 60
    f = (share**0.5 - share[0] ** 0.5) / (1 - share[0] ** 0.5)
    sigma = state_space.robust_noise_level(y)
    design = np.column_stack([np.ones(60), f])
    precision = design.T @ design + np.diag([0.0, 1 / 2.0**2])
    gain = 3 * 60 / 100 * sigma  # three units of noise per hundred rewards
    best = np.linalg.solve(precision, design.T @ y + np.array([0.0, gain / 2.0**2]))
    assert found.weight[0] == pytest.approx(1)
    assert found.rise[0] == pytest.approx(best[1], rel=1e-8)
    assert found.level[0] == pytest.approx(best.sum(), rel=1e-8)
    ahead, variance = found.ahead(np.array([120.0]))
    moved = (2**0.5 - share[0] ** 0.5) / (1 - share[0] ** 0.5)
    assert ahead[0, 0] == pytest.approx(best @ [1, moved], rel=1e-8)
    scale = found.rise_variance[0] / np.linalg.inv(precision)[1, 1]
    expected = scale * np.array([1, moved]) @ np.linalg.inv(precision) @ np.array([1, moved])
    assert variance[0, 0] == pytest.approx(expected, rel=1e-8)


def test_shift_and_scale_carry_over() -> None:
    y = runs("rise", 1)[0][:100]
    plain = fit.forecast(T[:100], y, 50)
    moved = fit.forecast(10 * T[:100] - 3, 7 * y + 100, 500)
    np.testing.assert_allclose(moved.mean, 7 * plain.mean + 100, rtol=1e-7)
    np.testing.assert_allclose(moved.low, 7 * plain.low + 100, rtol=1e-7)
    assert len(plain.steps) == len(moved.steps) == 50
    assert moved.gain.value == pytest.approx(7 * plain.gain.value, rel=1e-6)


def test_spikes_keep_their_mean_and_do_not_make_a_trend() -> None:
    random = np.random.default_rng(3)
    y = 1 + 0.2 * random.standard_normal(100)
    y[[60, 75, 84, 90, 97]] += 20
    seen = fit.forecast(T[:100], y, 50)
    assert seen.mean.mean() == pytest.approx(y.mean(), abs=0.4)
    assert seen.high.max() > 10 or seen.high.max() < 3  # the band is of the reward, with its jackpots or without


def test_verdicts() -> None:
    random = np.random.default_rng(4)
    rising = fit.forecast(T, 0.05 * T + 0.3 * random.standard_normal(200), 100)
    assert rising.verdict == "rising"
    assert rising.gain.value > 0
    t = np.arange(1.0, 1001.0)
    falling = fit.forecast(t, -0.05 * t**0.5 + 0.3 * random.standard_normal(1000), 500)
    assert falling.verdict == "falling"
    t = np.arange(2000.0)
    level = fit.forecast(t, 5 * (1 - np.exp(-t / 20)) + 0.3 * random.standard_normal(2000), 20)
    assert level.verdict == "level"
    assert level.advice.startswith("stop")
    assert level.plateau.value == pytest.approx(5, abs=0.1)
    assert level.plateau_step == pytest.approx(20 * math.log(20), abs=10)
    noise = fit.forecast(T[:30], random.standard_normal(30), 100)
    assert noise.verdict == "cannot tell"
    assert noise.learning < 0.9
    dead = fit.forecast(T, np.zeros(200), 10)
    assert dead.verdict == "cannot tell"
    assert (dead.mean == 0).all()


def test_the_same_curve_gives_the_same_forecast() -> None:
    y = runs("rise", 1)[0]
    a, b = fit.forecast(T, y, 30), fit.forecast(T, y, 30)
    np.testing.assert_array_equal(a.low, b.low)
    assert (a.low < a.mean).all()
    assert (a.mean < a.high).all()
    wider = fit.forecast(T, y, 30, coverage=0.98)
    assert (wider.high - wider.low > a.high - a.low).all()


def test_bad_horizons() -> None:
    y = runs("rise", 1)[0]
    for horizon in (0, -5, math.nan, [150.0], []):
        with pytest.raises(UserError):
            fit.forecast(T, y, horizon)
    with pytest.raises(UserError, match="coverage"):
        fit.forecast(T, y, 10, coverage=1.0)


def test_a_late_take_off_widens_the_band_upward_only() -> None:
    y = runs("flat", 1, seed=2)[0][:100]
    seen = fit.forecast(T[:100], y, 100)
    skew = (seen.high - seen.mean) / (seen.mean - seen.low)  # at first only that of the noise
    assert skew[-1] > 1.1 * skew[0]
    low, high = seen.gain_between
    assert high - seen.gain.value == pytest.approx(2 * (seen.gain.value - low))  # the horizon is at u = 2
    z = 1.2815515655446004
    assert seen.gain.se == pytest.approx((high - low) / (2 * z))


def test_few_rewards_widen_by_the_root_of_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    y = runs("flat", 1, seed=2)[0][:15]
    seen = fit.forecast(T[:15], y, 15)
    monkeypatch.setattr("grposcope.timeseries.forecast.ENOUGH", 1)
    bold = fit.forecast(T[:15], y, 15)
    assert seen.gain.se == pytest.approx(2 * bold.gain.se)  # √(60/15)
    assert seen.level.se == pytest.approx(2 * bold.level.se)
    np.testing.assert_array_equal(seen.mean, bold.mean)
    assert (seen.high - seen.low > bold.high - bold.low).all()


def test_half_of_the_rewards_are_in_the_inner_interval() -> None:
    inside = []
    for y in runs("flat", 12, seed=5):
        seen = fit.forecast(T[:150], y[:150], T[150:])
        assert (seen.low < seen.inner_low).all()
        assert (seen.inner_high < seen.high).all()
        inside.append(((seen.inner_low <= y[150:]) & (y[150:] <= seen.inner_high)).mean())
    assert 0.42 < np.mean(inside) < 0.68


def test_a_far_horizon_stays_small() -> None:
    y = runs("rise", 1)[0]
    far = fit.forecast(T, y, 1_000_003)
    assert len(far.steps) <= 1000
    assert far.steps[-1] == 200 + 1_000_003
