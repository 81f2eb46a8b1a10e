"""The statistics behind the words of a page: intervals of held-out accuracy, and whether it changed.

A held-out accuracy is a mean over n problems of values in [0, 1]. Its interval is the normal one,
value ± 1.96 se, cut to [0, 1]. With fewer than 30 problems, or a standard error of 0 (all problems
alike), that one is too short, and Wilson's interval for n Bernoulli trials (Wilson 1927,
doi:10.2307/2276774) takes its place: it is wide enough, since no mean of values in [0, 1] varies
more than that of zeros and ones.

The difference of two evaluations has the error √(se₁² + se₂²) of independent ones. When both used
the same problems, as ours do, their errors mostly go the same way and this is too large: a change
that it calls beyond noise is, one that it does not may still be real.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from grposcope.records import Estimate

Z = 1.959963984540054
"""Of a 95% interval."""

ENOUGH = 30
"""Problems below which the normal interval is not trusted."""


@dataclass(frozen=True)
class Change:
    """From one held-out evaluation to another.

    verdict: up or down when beyond noise, "none" when a change could have been seen and was not,
    "unknown" when there are too few problems to tell. difference.flag says why.
    """

    difference: Estimate
    verdict: Literal["up", "down", "none", "unknown"]


def trusted(accuracy: Estimate) -> bool:
    """Whether the normal interval of this accuracy can be relied on."""
    return accuracy.n >= ENOUGH and math.isfinite(accuracy.se) and accuracy.se > 0


def interval(accuracy: Estimate) -> tuple[float, float]:
    """95% interval of a mean over n problems of values in [0, 1]; NaN without problems."""
    if accuracy.n < 1 or not math.isfinite(accuracy.value):
        return math.nan, math.nan
    if trusted(accuracy):
        low, high = accuracy.interval(Z)
        return max(low, 0.0), min(high, 1.0)
    return wilson(accuracy.value, accuracy.n)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95% interval for a share of n independent trials."""
    spread = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    centre, scale = share + Z**2 / (2 * n), 1 + Z**2 / n
    return max((centre - spread) / scale, 0.0), min((centre + spread) / scale, 1.0)


def change(first: Estimate, last: Estimate) -> Change:
    """What two evaluations say about the difference between the policies."""
    n = min(first.n, last.n)
    value = last.value - first.value
    if trusted(first) and trusted(last):
        error = math.hypot(first.se, last.se)
        return Change(Estimate(value, error, n), "none" if abs(value) <= Z * error else "up" if value > 0 else "down")
    reason = f"{n} problems are too few" if n < ENOUGH else "all problems came out alike"
    difference = Estimate(value, math.nan, n, reason)
    (low, high), (low_last, high_last) = interval(first), interval(last)
    if low_last > high:
        return Change(difference, "up")
    if high_last < low:
        return Change(difference, "down")
    return Change(difference, "unknown" if n < ENOUGH or not math.isfinite(value) else "none")
