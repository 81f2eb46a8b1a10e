"""Rows that are an exponential average are recognised, and rows with a jump are not taken for one."""

from __future__ import annotations

import numpy as np
import pytest

from grposcope.maths.timeseries.noise import smoothing

WHITE = np.random.default_rng(0).normal(size=(12, 200))


def averaged(rows: np.ndarray, phi: float) -> np.ndarray:
    """The exponential average of rows, begun at the first."""
    values = [rows[0]]
    for value in rows[1:]:
        values.append(phi * values[-1] + (1 - phi) * value)
    return np.array(values)


@pytest.mark.parametrize("phi", [0.8, 0.9, 0.95])
def test_an_exponential_average_is_recognised(phi: float) -> None:
    found = [smoothing(averaged(rows, phi)) for rows in WHITE]
    assert sum(one > 0 for one in found) >= 11
    assert abs(float(np.median(found)) - phi) < 0.12


@pytest.mark.parametrize("jump", [0.0, 10.0, 50.0])
def test_a_jump_between_rows_with_noise_of_their_own_is_no_average(jump: float) -> None:
    """One difference that is nearly all there is of them has no correlation, as those of a wandering have none."""
    step = jump * (np.arange(200) >= 120)
    assert all(smoothing(rows - step) == 0 for rows in WHITE)
