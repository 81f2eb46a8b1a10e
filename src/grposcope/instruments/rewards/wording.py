"""Estimates as this instrument words them: with half of their 95 % interval behind them."""

from __future__ import annotations

import math

from grposcope.core.estimate import Estimate
from grposcope.core.text import number, percent
from grposcope.maths.intervals import Z

UNTOLD = "cannot tell"


def shown_share(one: Estimate, digits: int = 0) -> str:
    """A share in percent."""
    if not math.isfinite(one.value):
        return UNTOLD
    if not math.isfinite(one.se):
        return percent(one.value, digits)
    return f"{percent(one.value, digits)} ± {percent(Z * one.se, max(digits, 1))}"


def shown_value(one: Estimate) -> str:
    """A number."""
    if not math.isfinite(one.value):
        return UNTOLD
    return number(one.value) + (f" ± {number(Z * one.se)}" if math.isfinite(one.se) else "")
