"""The rule of kl: what it flags, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_series as made
from synthetic_series import U, flagged


@pytest.mark.parametrize(("ends", "found"), [((0.6, 0.7), False), ((1e-3, 0.2), False), ((0.05, 3), True)])
def test_kl_must_be_far_and_steep(ends: tuple[float, float], found: bool) -> None:
    table = made.healthy()
    table["kl"] = np.where(U < 0.6, *ends)
    assert ("kl blow-up" in flagged(table)) == found


@pytest.mark.parametrize(("value", "found"), [(1e6, True), (150.0, True), (3.0, False)])
def test_a_single_row_that_exploded_is_not_silent(value: float, found: bool) -> None:
    table = made.healthy()
    table["kl"] = np.full(len(U), 0.02)
    table["kl"][len(U) // 2] = value
    assert ("kl blow-up" in flagged(table)) == found
