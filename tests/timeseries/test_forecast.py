"""Forecasts: what they gain on the last level, ranges that they keep, calibration, invariances, honest refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.dynamics import fit
from grposcope.errors import UserError
from grposcope.timeseries.model_comparison import last_level
from grposcope.timeseries.reward_range import RewardRange

T = np.arange(1.0, 201.0)


def runs(kind: str, count: int, seed: int = 0) -> list[np.ndarray]:
    """Synthetic rewards of 200 steps with unit noise, or shares of 64 rollouts that approach 1."""
    random = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        noise = random.standard_normal(200)
        if kind == "rises":
            out.append(random.uniform(1, 6) * (1 - np.exp(-T / random.uniform(40, 300))) + noise)
        elif kind == "saturates early":
            out.append(random.uniform(2, 15) * (1 - np.exp(-T / random.uniform(6, 30))) + noise)
        elif kind == "flat":
            out.append(noise)
        elif kind == "wanders":
            out.append(np.cumsum(0.3 * random.standard_normal(200)) + noise)
        else:
            out.append(random.binomial(64, 1 - 0.7 * np.exp(-T / random.uniform(20, 60))) / 64)
    return out


def rmse(a: np.ndarray | float, b: np.ndarray) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2)))


@pytest.mark.parametrize(
    ("kind", "gain", "least"),
    [
        ("rises", 1.0, 0.85),
        ("saturates early", 1.02, 0.88),
        ("flat", 1.0, 0.85),
        ("wanders", 1.1, 0.65),
        ("near the ceiling", 0.9, 0.85),
    ],
)
def test_beats_the_last_level_and_covers(kind: str, gain: float, least: float) -> None:
    """A level that wanders as fast late as early is not what runs do, and is covered less."""
    ratios, covered = [], []
    for y in runs(kind, 12):
        seen = fit.forecast(T[:80], y[:80], T[80:])
        ratios.append(rmse(seen.mean, y[80:]) / rmse(last_level(y[:80]), y[80:]))
        covered.append(((seen.low <= y[80:]) & (y[80:] <= seen.high)).mean())
    assert np.exp(np.mean(np.log(ratios))) < gain
    assert least < np.mean(covered) <= 1


def test_a_reward_of_0_and_1_is_never_expected_outside() -> None:
    for y in runs("near the ceiling", 30, seed=3):
        for n in (40, 80, 160):
            seen = fit.forecast(T[:n], y[:n], T[n:])
            for part in (seen.mean, seen.low, seen.high, seen.inner_low, seen.inner_high):
                assert part.min() >= 0
                assert part.max() <= 1
            low, high = seen.change_between
            assert 0 <= seen.level.value + low <= seen.level.value + high <= 1


def test_a_range_that_is_known_is_kept_and_one_that_rewards_leave_is_not() -> None:
    y = 2 * runs("near the ceiling", 1)[0] - 1
    kept = fit.forecast(T[:80], y[:80], T[80:], limits=RewardRange(-1, 1))
    assert kept.high.max() <= 1
    assert kept.flag == ""
    left = fit.forecast(T[:80], y[:80], T[80:], limits=RewardRange(0, 1))
    assert "leave the range 0 to 1" in left.flag
    assert left.limits == RewardRange()


def test_shift_and_scale_carry_over() -> None:
    y = runs("rises", 1)[0][:100]
    plain = fit.forecast(T[:100], y, 50)
    moved = fit.forecast(10 * T[:100] - 3, 7 * y + 100, 500)
    np.testing.assert_allclose(moved.mean, 7 * plain.mean + 100, rtol=1e-6)
    np.testing.assert_allclose(moved.low, 7 * plain.low + 100, rtol=1e-6)
    assert len(plain.steps) == len(moved.steps) == 50
    assert moved.change.value == pytest.approx(7 * plain.change.value, rel=1e-5)
    assert moved.verdict == plain.verdict


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
    assert rising.change.value > 0
    t = np.arange(1.0, 1001.0)
    assert fit.forecast(t, -0.05 * t + 0.3 * random.standard_normal(1000), 500).verdict == "declining"
    noise = fit.forecast(T[:30], random.standard_normal(30), 100)
    assert noise.verdict == "cannot tell"
    dead = fit.forecast(T, np.zeros(200), 10)
    assert dead.verdict == "cannot tell"
    assert (dead.mean == 0).all()


def test_the_same_curve_gives_the_same_forecast() -> None:
    y = runs("rises", 1)[0]
    a, b = fit.forecast(T, y, 30), fit.forecast(T, y, 30)
    np.testing.assert_array_equal(a.low, b.low)
    assert (a.low < a.inner_low).all()
    assert (a.inner_low < a.mean).all()
    assert (a.mean < a.inner_high).all()
    assert (a.inner_high < a.high).all()
    wider = fit.forecast(T, y, 30, coverage=0.98)
    assert (wider.high - wider.low > a.high - a.low).all()


def test_bad_horizons() -> None:
    y = runs("rises", 1)[0]
    for horizon in (0, -5, math.nan, [150.0], []):
        with pytest.raises(UserError):
            fit.forecast(T, y, horizon)
    with pytest.raises(UserError, match="coverage"):
        fit.forecast(T, y, 10, coverage=1.0)


def test_a_far_horizon_stays_small() -> None:
    y = runs("rises", 1)[0]
    far = fit.forecast(T, y, 1_000_003)
    assert len(far.steps) <= 1000
    assert far.steps[-1] == 200 + 1_000_003
