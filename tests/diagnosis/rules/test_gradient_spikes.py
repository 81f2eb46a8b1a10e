"""Gradient spikes and gradient explosion: the distributions that the p-values are taken from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.ndimage import median_filter

from grposcope.diagnosis.rules import gradient_spikes


@pytest.mark.parametrize("rows", [10, 300, 5000])
def test_the_p_value_is_that_of_two_of_n_under_students_t(rows: int) -> None:
    rng = np.random.default_rng(rows)
    norms = np.exp(rng.normal(0, 0.3, rows))
    norms[[3, 8]] *= 20
    p, multiples, spikes = gradient_spikes._spikes(norms)
    deviation = np.log(norms) - median_filter(np.log(norms), 31, mode="nearest")
    scale = 1.4826 * np.median(np.abs(deviation))
    tail = stats.t.sf(np.sort(deviation)[-2] / scale, gradient_spikes.TAILS)
    assert p == pytest.approx(stats.binom.sf(1, rows, tail), rel=1e-12)
    assert sorted(spikes) == [3, 8]
    assert multiples == pytest.approx(np.sort(np.exp(deviation))[:-3:-1])
