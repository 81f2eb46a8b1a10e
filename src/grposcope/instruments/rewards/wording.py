"""Estimates as this instrument words them: with half of their 95 % interval behind them."""

from __future__ import annotations

import math

from grposcope.core.estimate import Estimate
from grposcope.core.text import number, percent
from grposcope.maths.intervals import Z

UNTOLD = "cannot tell"


def shown_share(estimate: Estimate, digits: int = 0) -> str:
    """A share in percent."""
    if not math.isfinite(estimate.value):
        return UNTOLD
    if not math.isfinite(estimate.se):
        return percent(estimate.value, digits)
    return f"{percent(estimate.value, digits)} ± {percent(Z * estimate.se, max(digits, 1))}"


def shown_value(estimate: Estimate) -> str:
    """A number."""
    if not math.isfinite(estimate.value):
        return UNTOLD
    return number(estimate.value) + (f" ± {number(Z * estimate.se)}" if math.isfinite(estimate.se) else "")
