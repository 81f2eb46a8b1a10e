"""Cleaning of curves and estimates of their noise."""

from __future__ import annotations

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import reward_curve
from grposcope.instruments.dynamics.forecast import _without_spikes
from grposcope.instruments.dynamics.forecast_figures import _local_lines
from grposcope.maths.timeseries import noise


def test_gaps_restarts_and_disorder_are_mended_and_said() -> None:
    steps = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 2, 3, 9, 10, 11]
    reward = [9, 0, 1, 9, 9, 4, 5, 6, 7, 8, 2, 3, np.nan, 10, 11]
    mended = reward_curve.clean(steps, reward)
    assert mended.steps.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert mended.reward.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert "1 rows" in mended.notes[0]
    assert "3 steps are repeated" in mended.notes[1]
    assert reward_curve.clean(range(12)[::-1], np.arange(12.0)).notes == ("steps were out of order and were sorted",)
    assert reward_curve.clean(range(12), np.arange(12.0)).notes == ()


@pytest.mark.parametrize(
    ("steps", "reward", "message"),
    [
        (range(9), range(9), "the log has 9"),
        (range(12), range(11), "equal length"),
        (["a"] * 12, range(12), "numbers"),
        (range(12), [np.nan] * 12, "the log has 0"),
        (np.zeros((3, 4)), np.zeros((3, 4)), "two lists"),
    ],
)
def test_bad_curves(steps: object, reward: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        reward_curve.clean(steps, reward)  # type: ignore[arg-type]


def test_noise_level_ignores_a_smooth_curve() -> None:
    random = np.random.default_rng(0)
    curve = 10 * np.sin(np.linspace(0, 3, 20000))
    noisy = curve + 0.3 * random.standard_normal(20000)
    assert noise.difference_variance(noisy) == pytest.approx(0.09, rel=0.04)
    jackpots = noisy + 30.0 * (random.random(20000) < 0.01)
    assert noise.difference_variance(jackpots) > 4


def test_without_spikes() -> None:
    random = np.random.default_rng(1)
    curve = np.linspace(0, 5, 200) + 0.2 * random.standard_normal(200)
    spiked = curve.copy()
    spiked[[40, 90, 199]] += 30
    held = _without_spikes(spiked, 0.1, 3.0)
    assert np.abs(held - curve).max() < 2  # also at the very end, where no later point says what is usual
    assert np.abs(_without_spikes(curve, 0.1, 6.0) - curve).max() < 1e-12
    assert len(_without_spikes(curve[:10], 0.1, 3.0)) == 10


def test_averages_of_neighbours_end_evenly() -> None:
    t, y = np.arange(1.0, 24.0), np.random.default_rng(0).standard_normal(23)
    found = reward_curve.averaged(reward_curve.RewardCurve(t, y, ("note",)), 5)
    assert found.reward.tolist() == pytest.approx([y[:8].mean(), y[8:13].mean(), y[13:18].mean(), y[18:].mean()])
    assert found.steps.tolist() == [4.5, 11.0, 16.0, 21.0]
    assert found.notes == ("note", "each point is the mean of 5 logged rewards, and the intervals are for such means")
    whole = reward_curve.RewardCurve(t, y)
    assert reward_curve.averaged(whole, 23) is whole


def test_steps_that_share_a_batch_count_once() -> None:
    batches = np.random.default_rng(0).standard_normal(30)
    batches[11] = batches[10]  # two batches may agree by chance
    repeated = reward_curve.RewardCurve(np.arange(1.0, 91.0), np.repeat(batches, 3))
    once = reward_curve.each_batch(repeated, 3)
    np.testing.assert_array_equal(once.reward, batches)
    np.testing.assert_array_equal(once.steps, np.arange(1.0, 91.0, 3))
    assert "3 steps share a batch" in once.notes[0]
    distinct = reward_curve.RewardCurve(np.arange(90.0), np.random.default_rng(0).standard_normal(90))
    assert reward_curve.each_batch(distinct, 3) is distinct
    assert reward_curve.each_batch(repeated, 1) is repeated


def test_local_lines_keep_straight_lines_and_know_their_error() -> None:
    t = np.arange(1.0, 201.0)
    level, rate, _ = _local_lines(reward_curve.RewardCurve(t, 0.2 + 0.003 * t), 0.06)
    np.testing.assert_allclose(level, 0.2 + 0.003 * t, atol=1e-12)
    np.testing.assert_allclose(rate, 0.003, atol=1e-12)
    random = np.random.default_rng(0)
    draws = [_local_lines(reward_curve.RewardCurve(t, random.standard_normal(200)), 0.06) for _ in range(200)]
    spread = np.std([d[1] for d in draws], axis=0)
    claimed = np.median([d[2] for d in draws], axis=0)
    np.testing.assert_allclose(claimed[20:-20], spread[20:-20], rtol=0.25)
