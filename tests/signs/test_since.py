"""The quantities that rules ask for."""

from __future__ import annotations

import numpy as np

from grposcope.signs import onset
from grposcope.signs.quantities import MetricSeries


def test_an_outlier_is_no_onset() -> None:
    values = np.full(100, 0.1)
    values[60:] = 0.95
    values[[20, 40]] = 1.0
    since = onset.since(MetricSeries("dead_fraction", np.arange(1.0, 101), values), 1)
    assert since is not None
    assert since.step == 61
