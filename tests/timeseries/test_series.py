"""Cleaning of curves and estimates of their noise."""

from __future__ import annotations

import numpy as np
import pytest

from grposcope.errors import UserError
from grposcope.timeseries import series


def test_gaps_restarts_and_disorder_are_mended_and_said() -> None:
    steps = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 2, 3, 9, 10, 11]
    reward = [9, 0, 1, 9, 9, 4, 5, 6, 7, 8, 2, 3, np.nan, 10, 11]
    mended = series.clean(steps, reward)
    assert mended.steps.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert mended.reward.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert "1 rows" in mended.notes[0]
    assert "3 repeated steps" in mended.notes[1]
    assert series.clean(range(12)[::-1], np.arange(12.0)).notes == ("steps were not in order: sorted",)
    assert series.clean(range(12), np.arange(12.0)).notes == ()


@pytest.mark.parametrize(
    ("steps", "reward", "message"),
    [
        (range(9), range(9), "9 usable points"),
        (range(12), range(11), "equal length"),
        (["a"] * 12, range(12), "numbers"),
        (range(12), [np.nan] * 12, "0 usable points"),
        (np.zeros((3, 4)), np.zeros((3, 4)), "two lists"),
    ],
)
def test_bad_curves(steps: object, reward: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        series.clean(steps, reward)  # type: ignore[arg-type]


def test_noise_level_ignores_a_smooth_curve() -> None:
    random = np.random.default_rng(0)
    curve = 10 * np.sin(np.linspace(0, 3, 20000))
    noisy = curve + 0.3 * random.standard_normal(20000)
    assert series.noise_level(noisy) == pytest.approx(0.3, rel=0.02)
    assert series.robust_noise_level(noisy) == pytest.approx(0.3, rel=0.03)
    jackpots = noisy + 30.0 * (random.random(20000) < 0.01)
    assert series.robust_noise_level(jackpots) == pytest.approx(0.3, rel=0.05)
    assert series.noise_level(jackpots) > 2


def test_without_spikes() -> None:
    random = np.random.default_rng(1)
    curve = np.linspace(0, 5, 200) + 0.2 * random.standard_normal(200)
    spiked = curve.copy()
    spiked[[40, 90, 199]] += 30
    held = series.without_spikes(spiked, 0.1, 3.0)
    assert np.abs(held - curve).max() < 2  # also at the very end, where no later point says what is usual
    assert np.abs(series.without_spikes(curve, 0.1, 6.0) - curve).max() < 1e-12
    assert len(series.without_spikes(curve[:10], 0.1, 3.0)) == 10


def test_averages_of_neighbours_end_evenly() -> None:
    t, y = np.arange(1.0, 24.0), np.random.default_rng(0).standard_normal(23)
    found = series.averaged(series.Series(t, y, ("note",)), 5)
    assert found.reward.tolist() == pytest.approx([y[:8].mean(), y[8:13].mean(), y[13:18].mean(), y[18:].mean()])
    assert found.steps.tolist() == [4.5, 11.0, 16.0, 21.0]
    assert found.notes == ("note", "each point is the mean of 5 logged rewards, and so are the intervals")
    whole = series.Series(t, y)
    assert series.averaged(whole, 23) is whole


def test_steps_that_share_a_batch_count_once() -> None:
    batches = np.random.default_rng(0).standard_normal(30)
    batches[11] = batches[10]  # two batches may agree by chance
    repeated = series.Series(np.arange(1.0, 91.0), np.repeat(batches, 3))
    once = series.each_batch(repeated, 3)
    np.testing.assert_array_equal(once.reward, batches)
    np.testing.assert_array_equal(once.steps, np.arange(1.0, 91.0, 3))
    assert "3 steps share a batch" in once.notes[0]
    distinct = series.Series(np.arange(90.0), np.random.default_rng(0).standard_normal(90))
    assert series.each_batch(distinct, 3) is distinct
    assert series.each_batch(repeated, 1) is repeated
