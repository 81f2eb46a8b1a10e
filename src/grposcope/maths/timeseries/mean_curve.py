"""Regression of a series under noise of which a part may be known: what is not known is averaged over.

Method of this project; no publication.

Without knowledge of the noise there is the grid of `noise`, its scale unknown within a factor e^SCALES. Where sampling
alone gives a row a variance v between two bounds (`SamplingVariance`), there are further noises: v alone, and v plus an
AR(1) wandering of RATIOS × v. CLAIM: the prior probability that the bounds are right, spread over log v; ALONE: that
nothing wanders then. All are weighted by the residual (REML) likelihood. So bounds that the scatter of the rows
contradicts lose their weight to the grid of `noise`, and a wandering too slow to be seen keeps about the weight that it
had beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

SCALES = 6.0
"""Logarithm of the largest over the smallest variance that an unknown noise may have."""

CLAIM, ALONE = 0.5, 0.8
"""Prior probability that the sampling variance is as claimed, and that there is no other noise if it is."""

PHI = (0.2, 0.5, 0.8, 0.9, 0.96, 0.99)
RATIOS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""φ of the wandering beside the sampling, and its variance over that of sampling; all pairs are equally likely."""

WIDER = 1.25
"""Factor by which bounds of a sampling variance are widened: spreads are estimates too."""

APART = 1.4
"""From one sampling variance of the grid to the next, as a factor, at most."""


@dataclass(frozen=True)
class SamplingVariance:
    """Bounds of the variance that a row has because its rollouts and prompts are drawn anew; 0 < low ≤ high."""

    low: float
    high: float

    def of_blocks(self, rows: float) -> SamplingVariance:
        """The bounds for means of `rows` rows."""
        return SamplingVariance(self.low / rows, self.high / rows)
