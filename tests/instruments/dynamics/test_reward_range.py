"""The range of a reward: what is inferred."""

from __future__ import annotations

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics.forecast import _inferred_range
from grposcope.instruments.dynamics.reward_range import RewardRange


def test_what_is_inferred() -> None:
    assert _inferred_range(np.array([0.0, 0.4, 1.0])) == RewardRange(0.0, 1.0)
    assert _inferred_range(np.array([-0.1, 0.4])) == _inferred_range(np.array([0.1, 1.4])) == RewardRange()
    with pytest.raises(UserError, match="must end above"):
        RewardRange(1.0, 1.0)
