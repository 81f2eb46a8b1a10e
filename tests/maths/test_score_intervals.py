"""Intervals of scores."""

from __future__ import annotations

import math

import pytest

from grposcope.core.estimate import Estimate
from grposcope.maths.intervals import interval


def test_a_share_of_few_trials_has_wilsons_interval() -> None:
    """n = 10, share 0.3: the roots of (p − 0.3)² = 1.96² p (1 − p) / 10."""
    low, high = interval(Estimate(0.3, math.nan, 10))
    for root in (low, high):
        assert (root - 0.3) ** 2 == pytest.approx(1.959964**2 * root * (1 - root) / 10, rel=1e-5)


@pytest.mark.parametrize("value", [-0.2, 1.7, math.nan, math.inf])
def test_what_is_no_share_has_none(value: float) -> None:
    assert all(map(math.isnan, interval(Estimate(value, math.nan, 10))))


@pytest.mark.parametrize("value", [0.02, 0.5, 0.91, 0.999])
@pytest.mark.parametrize("se", [1e-6, 0.05, 0.4, 1e9])
def test_an_interval_keeps_to_its_range(value: float, se: float) -> None:
    """And is the normal one where that is short; mirrored and moved ranges give mirrored and moved intervals."""
    number, low, high = Estimate(value, se, 9).within(0.0, 1.0)
    assert 0 <= low <= number == value <= high <= 1
    if se < 1e-3:
        assert (low, high) == pytest.approx(Estimate(value, se, 9).interval(), abs=1e-6)
    mirrored = Estimate(1 - value, se, 9).within(0.0, 1.0)
    assert mirrored == pytest.approx((1 - value, 1 - high, 1 - low), abs=1e-9)
    above = Estimate(1 + value, se, 9).within(1.0, math.inf)
    assert 1 <= above[1] <= 1 + value <= above[2]
    assert Estimate(-value, se, 9).within(-math.inf, 0.0)[2] <= 0


def test_a_number_beyond_its_range_is_the_end_of_it() -> None:
    assert Estimate(-0.03, 0.04, 9).within(0.0, math.inf) == pytest.approx((0.0, 0.0, 0.0484), abs=1e-4)
    assert Estimate(1.0, 0.0, 9).within(0.0, 1.0) == (1.0, 1.0, 1.0)
    assert Estimate(1.1, 0.2, 9).within(1.0, math.inf) == pytest.approx((1.1, 1.0, 1.1 + 0.392), abs=1e-3)
    assert Estimate(0.3, 0.1, 9).within(-math.inf, math.inf) == (0.3, *Estimate(0.3, 0.1, 9).interval())
