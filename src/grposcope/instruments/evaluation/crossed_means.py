"""Means over problems, and over trainings × problems: intervals, tests, and the differences that they would find.

Scores y[s, i] in [0, 1] of the models s of one arm (trainings that differ in their seed) on the same problems i. Both
trainings and problems are drawn from more of their kind, crossed: y = μ + a_s + b_i + e_si. With the mean squares

    A = I·var(mean of s),   B = S·var(mean of i),   E of the rest (ddof 1, (S − 1)(I − 1))

the mean has the variance (A + B − E)/(S·I), with Satterthwaite's degrees of freedom (Biometrics Bulletin 2, 110, 1946;
the same as clustering by both, doi:10.1198/jbes.2010.07136). It is never taken for less than that of trainings alone,
A/(S·I), or of problems alone, B/(S·I). An arm of one model has no trainings to vary: its variance is var(y)/I, where
completions of a problem count as they should, since they are part of y.

Interval of a mean: Wilson's with Student's t for the normal quantile and μ(1 − μ)/variance as the number of trials
(doi:10.1214/18-STS674 compares such). Student's interval is too short where few problems tell models apart:

- a mean whose distance d from 0, or from 1, rests on fewer than FEW problems, counted as (Σd)²/Σd² (Kish 1965), has no
  more trials than problems;
- a difference of two models that rests on as few has the interval of Agresti and Min (doi:10.1002/sim.1781), which adds
  half a problem won by each model and one tie. With fewer than FEW problems on which they differ, p is that of all
  changes of sign.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVEL = 0.95
"""Of the intervals."""

POWER = 0.8
"""Chance with which a detectable difference is found."""

FEW = 10
"""Problems that say something below which Student's interval is not trusted."""


@dataclass(frozen=True)
class CrossedMean:
    """A mean with its 95 % interval and what its noise is made of.

    se: standard error; se_problems, se_trainings: of the parts that are shared by the same problem and by the same
    training (the last NaN for one model). df: degrees of freedom. p: that the mean is 0, two-sided, for differences.
    detectable: the true difference that would be found in POWER of such comparisons; for the mean of one arm, the
    difference from another arm like it, if scores of one problem were unrelated. problems, trainings: how many.
    """

    value: float
    se: float
    low: float
    high: float
    df: float
    problems: int
    trainings: int
    se_problems: float
    se_trainings: float
    p: float = math.nan
    detectable: float = math.nan
