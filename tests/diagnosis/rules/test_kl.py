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
