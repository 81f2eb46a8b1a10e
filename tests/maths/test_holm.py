"""P-values of several tests, adjusted by Holm's method."""

from __future__ import annotations

import math

import pytest

from grposcope.maths.holm import holm


def test_holm() -> None:
    assert holm([0.01, 0.04, math.nan, 0.03])[:2] == pytest.approx([0.03, 0.06])
    assert math.isnan(holm([math.nan])[0])
