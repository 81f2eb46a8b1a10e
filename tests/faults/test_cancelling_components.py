"""The rule of cancelling components: what it flags, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import synthetic_series as made
from synthetic_series import flagged

RNG = np.random.default_rng(0)
SWING = 0.6 * RNG.normal(size=120)


def test_components_that_go_against_each_other_while_their_sum_stays() -> None:
    table = made.healthy()
    table["component/a"], table["component/b"] = 0.5 + SWING, table["reward"] - 0.5 - SWING
    assert "cancelling components" in flagged(table)


def test_a_small_spread_within_groups_is_no_cancelling() -> None:
    """That of the reward is within groups, those of its components are of the whole batch: they do not compare."""
    table = made.healthy()
    for name in ("a", "b"):
        table[f"component/{name}"] = table["reward"] / 2 + 0.005 * RNG.normal(size=120)
        table[f"component_std/{name}"] = np.full(120, 0.4)
    table["reward_std"] = np.full(120, 0.01)
    assert "cancelling components" not in flagged(table)


def test_a_sum_with_small_weights_is_no_cancelling() -> None:
    table = made.healthy()
    table["component/a"], table["component/b"] = 50 * table["reward"], 50 * table["reward"] + SWING
    assert "cancelling components" not in flagged(table)
