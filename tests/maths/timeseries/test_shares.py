"""How many answers shares are of."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.maths.timeseries.shares import _answers, sampling_variance


@pytest.mark.parametrize("n", [30, 100, 500, 1319, 2000])
def test_digits_show_the_number_of_answers(n: int) -> None:
    values = np.random.default_rng(n).binomial(n, 0.4, 12) / n
    assert _answers(values) == n
    assert _answers(values.astype(np.float32).astype(float)) == n
    assert sampling_variance(values) == pytest.approx(0.24 / n, rel=0.1)


def test_rounded_and_other_values_show_nothing() -> None:
    values = np.random.default_rng(0).binomial(1319, 0.4, 12) / 1319
    assert _answers(values.round(3)) is None
    assert _answers(values.round(4)) is None
    assert _answers(values + 0.3 * math.pi) is None
    assert math.isnan(sampling_variance(np.random.default_rng(1).random(12)))
