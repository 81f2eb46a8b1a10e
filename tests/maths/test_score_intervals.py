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
