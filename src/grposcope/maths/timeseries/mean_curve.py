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

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.fft import dct
from scipy.special import gammaln

from grposcope.maths.timeseries.noise import Array, Design, Regression, cosine_variances, posterior

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


def regress(design: Design, y: Array, sampling: SamplingVariance | None = None) -> Regression:
    """Regression of y (n,) on a design prepared for the grid of `noise`; an exact fit has covariance 0."""
    if sampling is None:
        return design.regress(y)
    z = dct(y, norm="ortho")
    unknown = design.regress(y)
    if not unknown.covariance.any():
        return unknown
    squares = design.solve(z)[1]
    log = design.log_likelihood(squares) + gammaln(design.df / 2) + 0.5 * design.df * math.log(2) - math.log(SCALES)
    variances, prior = _noises(len(y), sampling)
    known = Design(design.x, variances=variances)
    b, squares = known.solve(z)
    logs = (log + math.log((1 - CLAIM) / len(log)), known.base - squares / 2 + prior + math.log(CLAIM))
    return Regression(
        posterior(np.concatenate(logs)),
        np.concatenate([unknown.coefficients, b]),
        np.concatenate([unknown.covariance, known.inverse]),
        np.concatenate([unknown.df, np.full(len(b), np.inf)]),
    )


def _noises(n: int, sampling: SamplingVariance) -> tuple[Array, Array]:
    """Variances (M, n) of the cosine coefficients of the noises with a known part, and the log prior (M,) of each."""
    low, high = sampling.low / WIDER, sampling.high * WIDER
    count = max(3, 1 + math.ceil(math.log(high / low) / math.log(APART)))
    v = np.exp(np.linspace(math.log(low), math.log(high), count))
    wandering = _wandering(n)
    prior = np.concatenate([[math.log(ALONE)], np.full(len(wandering), math.log((1 - ALONE) / len(wandering)))])
    beside = np.concatenate([np.ones((1, n)), 1 + wandering])
    return (v[:, None, None] * beside).reshape(-1, n), np.tile(prior - math.log(count), count)


@lru_cache(maxsize=8)
def _wandering(n: int) -> Array:
    """Variances (M, n) of the cosine coefficients of an AR(1) for every φ and ratio."""
    rows, names = cosine_variances(n, phi=PHI, shares=(1.0,))
    return np.concatenate([ratio * rows[names[:, 0] > 0] for ratio in RATIOS])
