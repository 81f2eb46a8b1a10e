"""The setting rewards=binary beside a log that contradicts it."""

from __future__ import annotations

import pytest
import synthetic_series as made

from grposcope.core.errors import UserError
from grposcope.instruments.diagnosis import diagnose


def test_rewards_outside_0_and_1_are_not_binary() -> None:
    table = made.healthy()
    diagnose(made.run(table, None, rewards="binary", group=8))
    table["reward"] = table["reward"] - 1
    with pytest.raises(UserError, match=r"rewards=binary says that every reward is 0 or 1, and reward is -0\..*leave"):
        diagnose(made.run(table, None, rewards="binary", group=8))
