"""Did a score that is measured a few times fall, or stand still, from some place of the run on?

Method of this project; no publication.

A held-out score is measured 4 to some 50 times. For each of a few places of the run, it is fitted by one straight line
before the place and another from there on, with a jump between them. Of a score that only rises, however suddenly or
early it does so, the line from a place on never falls in expectation, and what the lines do not fit only enlarges the
error. Whoever looks at several places multiplies the least p-value by their number.

The noise is white measurement noise plus a wandering (`noise`) that is forgotten within FORGOTTEN of the run: of E
evaluations successive ones then correlate by at most exp(−1/(FORGOTTEN E)). A slower wandering cannot be told from a
trend with so few points. Its size is judged from what the lines leave, and from the sampling variance v of one value
where that is known: c v with a prior that is flat in log c up to 1, since the same problems every time make less noise
than v, and falls as 1/c above, where the score wanders. Without v the prior is flat throughout, which is Student's t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.fft import dct

from grposcope.maths.timeseries.noise import Array, Contrast, Design, Regression, cosine_variances, posterior

PLACES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75)
"""Shares of the run from which on a score is looked at."""

AFTER = 3
"""Values that are needed from a place on."""

FORGOTTEN = 0.05
"""Share of the run within which a wandering of the score is forgotten."""

SCALES = np.geomspace(1 / 64, 256, 57)
"""Variances of the noise in units of the sampling variance."""

NORMAL = 10**6
"""Degrees of freedom of a normal distribution."""


@dataclass(frozen=True)
class Since:
    """A score from one place of the run on.

    first: index of the first value from there on; share: where that value lies. regression: of the two lines; its
    first two coefficients are the value at `first` and the change from there to the end. begin: weights of the
    coefficients that give the fitted value at the beginning of the run.
    """

    first: int
    share: float
    regression: Regression
    begin: Array

    @property
    def start(self) -> float:
        """Fitted value at the place."""
        return self.regression.test(np.eye(len(self.begin))[0]).value

    def change(self, minus: float = 0.0) -> Contrast:
        """Change from the place to the end, less a constant."""
        return self.regression.test(np.eye(len(self.begin))[1], minus)

    def whole(self, minus: float = 0.0) -> Contrast:
        """Change from the beginning of the run to its end, less a constant."""
        end = np.zeros(len(self.begin))
        end[:2] = 1
        return self.regression.test(end - self.begin, minus)


def since_places(share: Array, y: Array, variance: float = math.nan, forgotten: float = FORGOTTEN) -> list[Since]:
    """The score y (E,), measured at shares (E,) of the run that do not fall, from each place that can be looked at.

    variance: the sampling variance of one value, NaN where it is not known. forgotten: share of the run within which a
    wandering is forgotten.
    """
    firsts = {int(np.searchsorted(share, place - 1e-9)) for place in PLACES}
    return [seen for first in sorted(firsts) if (seen := _since(share, y, first, variance, forgotten)) is not None]


def _since(share: Array, y: Array, first: int, variance: float, forgotten: float) -> Since | None:
    """The score from its value `first` on; None where too few values are left for the lines and their noise."""
    n = len(y)
    if n - first < AFTER or share[-1] <= share[first]:
        return None
    after = np.arange(n) >= first
    columns = [after.astype(float), np.where(after, (share - share[first]) / (share[-1] - share[first]), 0.0)]
    begin = [1.0, 0.0]
    if first > 0:
        columns.append((~after).astype(float))
        begin = [0.0, 0.0, 1.0]
    if first > 1 and share[first - 1] > share[0]:
        columns.append(np.where(after, 0.0, share - share[0]))
        begin.append(0.0)
    if n - len(columns) < 2:
        return None
    variances, noises = cosine_variances(n)
    known = noises[:, 0] <= math.exp(-1 / (forgotten * n))
    design = Design(np.array(columns).T, variances=variances[known])
    fitted = _known_noise(design, y, variance) if variance > 0 else _at_least_rounded(design, y)
    return Since(first, float(share[first]), fitted, np.array(begin))


def _known_noise(design: Design, y: Array, variance: float) -> Regression:
    """The fit of y (n,) by every noise and each of SCALES of its variance."""
    b, squares = design.solve(dct(y, norm="ortho"))
    sizes = variance * SCALES
    likelihood = design.base[:, None] - 0.5 * design.df * np.log(sizes) - 0.5 * squares[:, None] / sizes
    weight = posterior((likelihood - np.log(np.maximum(SCALES, 1))).ravel())
    covariance = (sizes[:, None, None] * design.inverse[:, None]).reshape(-1, *design.inverse.shape[1:])
    return Regression(weight, np.repeat(b, len(sizes), 0), covariance, np.full(len(weight), float(NORMAL)))


def _at_least_rounded(design: Design, y: Array) -> Regression:
    """The fit of y (n,), with a noise no smaller than that of rounding to the least difference between two values."""
    fitted = design.regress(y)
    values = np.unique(y)
    rounding = float(np.diff(values).min()) ** 2 / 12 if len(values) > 1 else 0.0
    squares = np.maximum(fitted.covariance[:, 0, 0] / design.inverse[:, 0, 0], rounding)
    return Regression(fitted.weight, fitted.coefficients, design.inverse * squares[:, None, None], fitted.df)
