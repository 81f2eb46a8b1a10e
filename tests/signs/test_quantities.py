"""The quantities that rules ask for."""

from __future__ import annotations

import numpy as np

from grposcope.signs.quantities import MetricSeries


def test_an_outlier_is_no_onset() -> None:
    values = np.full(100, 0.1)
    values[60:] = 0.95
    values[[20, 40]] = 1.0
    series = MetricSeries("dead_fraction", np.arange(1.0, 101), values)
    assert series.first_above(0.85) == 61
    assert series.first_above(0.99) is None
    slow = MetricSeries("x", np.arange(1.0, 31), np.random.default_rng(0).random(30))
    running = [min(np.cumsum(slow.values[i:]) / np.arange(1, 31 - i)) for i in range(30)]
    assert slow.first_above(0.3) == 1 + next(i for i, least in enumerate(running) if least > 0.3)
