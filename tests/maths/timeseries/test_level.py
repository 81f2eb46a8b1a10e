"""Levels are means over windows, blurred by measurement noise alone; wandering and jumps elsewhere do not count."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from synthetic_series import ar1

from grposcope.maths.timeseries import level

LATE = (0.8, 1.0)


def test_rows_are_those_whose_middle_lies_in_the_window() -> None:
    assert level.rows(100, LATE) == slice(80, 100)
    assert level.rows(100, (0.0, 0.15)) == slice(0, 15)
    assert level.rows(7, (0.2, 0.6)) == slice(1, 4)


def test_short_windows_are_widened_and_stay_inside() -> None:
    assert level.rows(12, (0.9, 1.0)) == slice(9, 12)
    assert level.rows(12, (0.0, 0.1)) == slice(0, 3)
    assert level.rows(2, LATE) == slice(0, 2)


def test_value_and_error_by_hand() -> None:
    y = np.arange(40.0) % 2  # 0, 1, 0, 1 …: Δ² is 1 everywhere
    found = level.level(y, (0.5, 1.0), above=0.2)
    assert found.value == pytest.approx(0.3)
    assert found.se == pytest.approx(np.sqrt(0.5 / 20))
    assert found.p_up == pytest.approx(stats.t.sf(0.3 / np.sqrt(0.5 / 20), 2 * 19 / 3))
    assert found.p_up + found.p_down == pytest.approx(1)


def test_change_scales_the_early_part() -> None:
    y = np.arange(40.0) % 2
    y[20:] += 5
    found = level.change(y, (0.0, 0.5), (0.5, 1.0), ratio=2.0, minus=1.0)
    assert found.value == pytest.approx(5.5 - 2 * 0.5 - 1)
    assert found.se == pytest.approx(np.sqrt(0.5 / 20 * (1 + 4)))


def test_constant_windows_are_decided_by_the_sign() -> None:
    assert level.level(np.full(40, 0.9), LATE, 0.8).p_up == 0.0
    assert level.level(np.full(40, 0.8), LATE, 0.8).p_up == 1.0
    assert level.change(np.full(40, 1.0), (0.0, 0.2), LATE, minus=0.5).p_down == 0.0


def test_size_at_the_limit_under_white_noise() -> None:
    rng = np.random.default_rng(0)
    found = [level.level(rng.normal(size=60), LATE).p_up < 0.05 for _ in range(2000)]
    assert 0.03 < np.mean(found) < 0.07


def test_wandering_is_part_of_the_level() -> None:
    """The realised mean is covered, though the mean that the process was drawn from is not."""
    rng = np.random.default_rng(1)
    own, drawn = 0, 0
    for _ in range(300):
        wander = 3 * ar1(rng, 100, 0.98)
        y = wander + rng.normal(size=100)
        found = level.level(y, LATE)
        own += abs(found.value - wander[80:].mean()) < 2.1 * found.se
        drawn += abs(found.value) < 2.1 * found.se
    assert own > 0.93 * 300
    assert drawn < 0.5 * 300


def test_a_jump_outside_the_windows_does_not_blur() -> None:
    y = 0.1 * np.random.default_rng(2).normal(size=100)
    y[50:] -= 5
    assert level.change(y, (0.0, 0.15), LATE, minus=-4.0).p_down < 1e-9
