"""The rule of non finite: what it flags, and what it leaves alone."""

from __future__ import annotations

import math

import synthetic_series as made
from synthetic_series import Columns, flagged

from grposcope.core.files import WRITTEN_NULL


def lost(t: Columns) -> None:
    t["grad_norm"][[60, 75]] = WRITTEN_NULL


def test_a_lost_gradient_counts_only_in_whole_rows() -> None:
    table = made.healthy()
    lost(table)
    assert "non-finite" in flagged(table)
    table["grad_norm"][[60, 75]] = math.nan
    assert "non-finite" not in flagged(table), "the rows lack the key"
    for column in table.values():
        column[[60, 75]] = WRITTEN_NULL
    assert "non-finite" not in flagged(table)
