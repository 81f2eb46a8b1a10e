"""The rule of misconfiguration: what it flags, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import synthetic_series as made
from synthetic_series import flagged


def test_groups_of_one_by_setting_or_by_advantages() -> None:
    table = made.healthy()
    assert flagged(table, group=1)[0] == "misconfiguration"
    table["advantage_max"] = table["reward_max"] = np.ones(120)
    table["advantage_min"] = table["reward_min"] = np.zeros(120)
    assert flagged(table)[0] == "misconfiguration"
    table["advantage_max"] = np.full(120, 1.6)
    assert "misconfiguration" not in flagged(table)
