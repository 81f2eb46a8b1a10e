"""Running medians against those of SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from grposcope.maths.timeseries.running_median import running_median


@pytest.mark.parametrize("size", [1, 2, 3, 6, 9, 25])
@pytest.mark.parametrize("n", [1, 4, 40])
def test_the_running_median_is_scipys(n: int, size: int) -> None:
    y = np.random.default_rng(n).standard_normal(n)
    np.testing.assert_array_equal(running_median(y, size), ndimage.median_filter(y, size, mode="reflect"))
    np.testing.assert_array_equal(running_median(y, size, False), ndimage.median_filter(y, size, mode="nearest"))
