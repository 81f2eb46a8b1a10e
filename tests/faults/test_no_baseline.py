"""Groups of one, advantages without a baseline, a learning rate of 0: each is named, and what resembles it is not."""

from __future__ import annotations

import numpy as np
import synthetic_series as made
from synthetic_series import flagged


def test_groups_of_one_by_setting() -> None:
    assert flagged(made.healthy(), group=1)[0] == "group of one"
    assert "group of one" not in flagged(made.healthy(), group=2)


def test_advantages_that_are_the_rewards() -> None:
    table = made.healthy()
    table["advantage_max"] = table["reward_max"] = np.ones(120)
    table["advantage_min"] = table["reward_min"] = np.zeros(120)
    assert flagged(table)[0] == "no baseline"
    table["advantage_max"] = np.full(120, 1.6)
    assert "no baseline" not in flagged(table)


def test_a_learning_rate_of_zero_and_one_that_decays_to_it() -> None:
    assert flagged({**made.healthy(), "lr": np.zeros(120)})[0] == "zero learning rate"
    assert "zero learning rate" not in flagged({**made.healthy(), "lr": np.linspace(1e-6, 0, 120)})
