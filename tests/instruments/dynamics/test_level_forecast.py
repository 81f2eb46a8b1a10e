"""Forecasts: coverage by kind of curve, ranges that they keep, invariances, verdicts that are rarely given."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from places import ROOT

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import fit
from grposcope.instruments.dynamics.forecast import _changes
from grposcope.instruments.dynamics.forecast import _level_now as level_now
from grposcope.instruments.dynamics.forecast_summary import _last_level
from grposcope.instruments.dynamics.reward_range import RewardRange

sys.path.insert(0, str(ROOT / "experiments"))
import dynamics_forecast

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "least"), [("flat", 0.8), ("saturating", 0.8), ("linear", 0.8), ("after peak", 0.65), ("ceiling", 0.8)]
)
def test_coverage(kind: str, least: float) -> None:
    """Half of a curve forecasts the other half; no curve at its ceiling or about to fall is called rising."""
    covered, _, verdicts = dynamics_forecast.coverage(kind, 60, 71, dynamics_forecast.stays)
    assert least < covered < 0.97
    assert verdicts["rising"] == 0
    _, _, later = dynamics_forecast.coverage("decline not begun", 40, 71, dynamics_forecast.stays)
    assert later["rising"] == 0


@pytest.mark.parametrize(("kind", "gain"), [("flat", 1.0), ("saturates early", 1.15), ("near the ceiling", 1.0)])
def test_errs_as_little_as_the_last_level_where_the_level_stays(kind: str, gain: float) -> None:
    ratios = []
    for y in runs(kind, 12):
        seen = fit.forecast(T[:80], y[:80], T[80:])
        ratios.append(rmse(seen.mean, y[80:]) / rmse(_last_level(y[:80]), y[80:]))
    assert np.exp(np.mean(np.log(ratios))) < gain


def test_a_level_without_noise_moves_as_it_moved() -> None:
    """A straight line: over one stretch a quarter of the last move is believed, its spread is SPREAD of that move."""
    line = 0.1 * np.arange(101.0)
    now, error = 10.0, 0.0
    for lead, stretches in ((90.0, 1), (45.0, 2), (9.0, 10)):
        move, spread = _changes(line, now, error, 0.0, np.array([lead]))
        believed = stretches / (stretches + 3)
        assert move[0] == pytest.approx(believed * 0.1 * lead)
        assert spread[0] == pytest.approx(0.8 * 0.1 * lead * math.sqrt(1 - believed**2))
    beyond = _changes(line, now, error, 0.0, np.array([90.5, 1000.0]))
    assert beyond[0][1] == pytest.approx(beyond[0][0], rel=0.01)


def test_a_turn_widens_the_band_and_moves_nothing() -> None:
    """Up and down again: over the whole way the level moved by nothing, and was far off."""
    up = np.append(np.arange(51.0), np.arange(49.0, -1.0, -1.0))
    move, spread = _changes(up, 0.0, 0.0, 0.0, np.array([50.0, 85.0]))
    assert spread[1] >= spread[0] > 30
    assert move[0] < 0
    assert abs(move[1]) < 5


def test_the_level_now() -> None:
    random = np.random.default_rng(5)
    ends = [level_now(2 + random.standard_normal(200), 1.0) for _ in range(200)]
    errors = np.array([level - 2 for level, _ in ends])
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(np.mean([error for _, error in ends]), rel=0.35)
    stepped = level_now(np.where(T < 150, 0.0, 5.0) + 0.1 * random.standard_normal(200), 0.1)
    assert stepped[0] == pytest.approx(5.0, abs=0.1)


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
    """A steady rise is believed where many stretches as long as the horizon rose alike, not over half of the run."""
    random = np.random.default_rng(4)
    line = 0.05 * T + 0.02 * random.standard_normal(200)
    soon = fit.forecast(T, line, 9)
    assert soon.verdict == "rising"
    assert soon.change_between[0] > 0
    assert fit.forecast(T, -line, 9).verdict == "declining"
    assert fit.forecast(T, line, 100).verdict == "cannot tell"
    assert fit.forecast(T, random.standard_normal(200), 100).verdict == "flat"
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
