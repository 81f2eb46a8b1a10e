"""Intervals of 95 % for shares: held-out accuracies, dead groups.

A share is a mean over n units of values in [0, 1]. Its interval is the normal one, value ± 1.96 se,
cut to [0, 1]. With fewer than 30 units, or a standard error of 0 (all units alike), that interval is too short,
and Wilson's interval for n Bernoulli trials (Wilson 1927, doi:10.2307/2276774) takes its place: it is wide enough,
since no mean of values in [0, 1] varies more than a mean of zeros and ones.
"""

from __future__ import annotations

import math

from grposcope.core.estimate import Estimate
from grposcope.core.text import number, percent, span

Z = 1.959963984540054
"""Quantile of the normal distribution for a 95 % interval."""

ENOUGH = 30
"""Units below which the normal interval is not trusted."""


def trusted(accuracy: Estimate) -> bool:
    """Whether the normal interval of this accuracy can be relied on; n is 0 where the log does not say it."""
    return (accuracy.n >= ENOUGH or accuracy.n == 0) and math.isfinite(accuracy.se) and accuracy.se > 0


def interval(accuracy: Estimate) -> tuple[float, float]:
    """95 % interval of a mean over n problems of values in [0, 1]; NaN without problems or for other values."""
    if not math.isfinite(accuracy.value) or not (accuracy.n or trusted(accuracy)):
        return math.nan, math.nan
    if trusted(accuracy):
        low, high = accuracy.interval(Z)
        return (max(low, 0.0), min(high, 1.0)) if 0 <= accuracy.value <= 1 else (low, high)
    return wilson(accuracy.value, accuracy.n) if 0 <= accuracy.value <= 1 else (math.nan, math.nan)


def shown_interval(accuracy: Estimate, shares: bool = True) -> str:
    """The 95 % interval of a score, in per cent where scores are shares."""
    return span(*interval(accuracy), (lambda share: percent(share, 1)) if shares else number)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share of n independent trials."""
    spread = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    centre, scale = share + Z**2 / (2 * n), 1 + Z**2 / n
    return max((centre - spread) / scale, 0.0), min((centre + spread) / scale, 1.0)
