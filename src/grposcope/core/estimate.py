"""A number with its uncertainty, which is how every number of the package travels."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A number with its uncertainty.

    value: the estimate; NaN where nothing can be said.
    se:    its standard error; NaN where it cannot be estimated.
    n:     how many independent units it rests on.
    flag:  empty when the estimate is fit for use, otherwise the reason for doubt.
    """

    value: float
    se: float
    n: int
    flag: str = ""

    @staticmethod
    def mean(values: list[float]) -> Estimate:
        """Sample mean of independent values with its standard error (ddof 1)."""
        n = len(values)
        if n == 0:
            return Estimate(math.nan, math.nan, 0, "no data")
        centre = math.fsum(values) / n
        if n == 1:
            return Estimate(centre, math.nan, 1, "one value: no standard error")
        variance = math.fsum((v - centre) ** 2 for v in values) / (n - 1)
        return Estimate(centre, math.sqrt(variance / n), n)

    def interval(self, z: float = 1.959963984540054) -> tuple[float, float]:
        """Normal interval value ± z·se (95 % by default)."""
        return self.value - z * self.se, self.value + z * self.se

    def within(self, least: float, most: float, z: float = 1.959963984540054) -> tuple[float, float, float]:
        """The number and its interval (low, high), none of which leaves [least, most], the range of what is estimated.

        Between two finite ends the interval is the normal one on the scale of the log odds (x − least)/(most − x), with
        the standard error by the delta method. With one end it is the normal one, cut at it, since a logarithm has no
        bound where the error is as large as the number. A number on or beyond an end, as unbiased estimates may be, is
        that end.
        """
        inner = min(max(self.value, least), most)
        above, below = self.value - least, most - self.value
        if not (0 < above < math.inf and 0 < below < math.inf and math.isfinite(self.se)):
            low, high = (min(max(end, least), most) for end in self.interval(z))
            return inner, low, high
        step = min(z * self.se * (1 / above + 1 / below), 500.0)  # beyond which exp has no number
        low, high = (least + (most - least) / (1 + below / above * math.exp(way * step)) for way in (1, -1))
        return inner, low, high

    def __str__(self) -> str:
        note = f" [{self.flag}]" if self.flag else ""
        return f"{self.value:.4g} ± {self.se:.2g} (n={self.n}){note}"


NOT_MEASURED = Estimate(math.nan, math.nan, 0, "not measured")
"""A number that nobody measured."""
