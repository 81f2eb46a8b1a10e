"""The rule of cancelling components: what it flags, and what it leaves alone."""

from __future__ import annotations

import numpy as np

import synthetic_series as made
from synthetic_series import flagged


def test_cancelling_components() -> None:
    table = made.healthy()
    for name in ("a", "b"):
        table[f"component/{name}"], table[f"component_std/{name}"] = np.full(120, 0.5), np.full(120, 0.4)
    assert "cancelling components" not in flagged(table)
    table["reward_std"] = np.full(120, 0.01)
    assert "cancelling components" in flagged(table)
