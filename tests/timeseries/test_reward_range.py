"""The range of a reward: what is inferred, and that expected levels approach its ends without reaching them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.errors import UserError
from grposcope.timeseries.reward_range import RewardRange, inferred


def test_what_is_inferred() -> None:
    assert inferred(np.array([0.0, 0.4, 1.0])) == RewardRange(0.0, 1.0)
    assert inferred(np.array([-0.1, 0.4])) == inferred(np.array([0.1, 1.4])) == RewardRange()
    with pytest.raises(UserError, match="must end above"):
        RewardRange(1.0, 1.0)


def test_expected_levels_stay_inside_and_small_changes_are_kept() -> None:
    change = np.array([-2.0, -0.001, 0.0, 0.001, 0.1, 2.0])
    path = RewardRange(0.0, 1.0).approach(0.8, change)
    assert (path > 0).all()
    assert (path < 1).all()
    assert (np.diff(path) > 0).all()
    assert path[2] == pytest.approx(0.8)
    assert path[3] - 0.8 == pytest.approx(0.001, rel=0.01)
    assert path[4] == pytest.approx(1 - 0.2 * math.exp(-0.5))
    np.testing.assert_allclose(RewardRange().approach(0.8, change), 0.8 + change)
    half = RewardRange(low=0.0).approach(0.8, change)
    assert half[0] > 0
    assert half[-1] == pytest.approx(2.8)
    assert RewardRange(0.0, 1.0).approach(1.0, np.zeros(1))[0] < 1
