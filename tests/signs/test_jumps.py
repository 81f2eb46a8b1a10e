"""The row of a jump beside its definition, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from grposcope.faults.update.learning_rate_off_schedule import _turning_up
from grposcope.signs.jumps import WINDOW, jump
from grposcope.signs.quantities import SHORT


def plainly(values: np.ndarray, direction: int, clear: float) -> int | None:
    """`jump` by a fit of two lines at each row."""
    best, largest = None, 0.0
    for row in range(20, len(values) - 20 + 1):
        ends, spreads = [], []
        for first, last, at in ((row - 20, row, row - 0.5), (row, row + 20, row - 0.5)):
            line = np.polyfit(np.arange(first, last), values[first:last], 1)
            ends.append(float(np.polyval(line, at)))
            spreads.append(float((values[first:last] - np.polyval(line, np.arange(first, last))).std(ddof=2)))
        size = direction * (ends[1] - ends[0])
        near, level = (
            direction * float(values[row : row + k].mean() - values[row - k : row].mean()) for k in (3, WINDOW)
        )
        if size > clear * max(spreads) and near > 0.75 * max(size, level) and size > largest:
            best, largest = row, size
    return best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("direction", [1, -1])
def test_a_jump_is_the_one_of_its_definition(seed: int, direction: int) -> None:
    rng = np.random.default_rng(seed)
    values = 0.1 * rng.normal(size=120) + direction * (seed % 3) * (np.arange(120) >= 50 + seed)
    assert jump(values, direction, 2.5) == plainly(values, direction, 2.5)
    assert (jump(values, direction, 2.5) is None) == (seed % 3 == 0)
    assert jump(values[:30], direction, 2.5) is None


def test_rates_turn_up_where_every_row_is_looked_at() -> None:
    steps = np.arange(200)
    rates = 1e-6 * (0.02 + 0.98 * (0.5 + 0.5 * np.cos(np.pi * (steps % 60) / 60)))
    rows = [
        row for row in range(SHORT, len(rates) - 15)
        if 0 < rates[row] < 0.5 * rates[:row].max() and rates[row] <= rates[row - 1] and rates[row] < rates[row + 1]
        and rates[row : row + 15].max() >= 3 * rates[row]
    ]  # fmt: skip
    assert _turning_up(rates) == rows == [59, 119, 179]
    assert _turning_up(rates[:10]) == []
