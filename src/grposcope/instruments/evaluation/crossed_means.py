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
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

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


def score(values: Array) -> CrossedMean:
    """The mean of scores in [0, 1], (S, I): S trainings or one model, I problems; no interval for I < 2."""
    mean = _mean([values], [1.0])
    if not math.isfinite(mean.se):
        return mean
    t = float(stdtrit(mean.df, (1 + LEVEL) / 2))
    share, per_problem = min(max(mean.value, 0.0), 1.0), values.mean(0)
    trials = share * (1 - share) / mean.se**2 if mean.se > 0 else math.inf
    if min(_told(per_problem), _told(1 - per_problem)) < FEW:
        trials = min(trials, float(mean.problems))
    low, high = _wilson(share, trials, t)
    detectable = math.sqrt(2) * (high - low) / (2 * t) * (t + float(stdtrit(mean.df, POWER)))
    return replace(mean, low=low, high=high, detectable=detectable)


def difference(first: Array, second: Array) -> CrossedMean:
    """The mean of second − first on the same problems, (S, I) and (S', I); no interval for I < 2."""
    mean = _mean([second, first], [1.0, -1.0])
    if not math.isfinite(mean.se):
        return mean
    each = second.mean(0) - first.mean(0)
    nonzero = each[each != 0]
    centre, se = mean.value, mean.se
    if mean.trainings == 1 and _told(np.abs(each)) < FEW:
        centre = float(each.sum()) / (mean.problems + 2)
        se = math.sqrt(
            max((float(np.square(each).sum()) + 1) / (mean.problems + 2) - centre**2, 0) / (mean.problems + 2)
        )
    if mean.trainings == 1 and len(nonzero) < FEW:
        p = _sign_changes(nonzero)
    else:
        p = float(2 * stdtr(mean.df, -abs(centre / se))) if se > 0 else float(centre == 0)
    t = float(stdtrit(mean.df, (1 + LEVEL) / 2))
    low, high = max(centre - t * se, -1.0), min(centre + t * se, 1.0)
    return replace(mean, low=low, high=high, p=p, detectable=se * (t + float(stdtrit(mean.df, POWER))))


def _sign_changes(differences: Array) -> float:
    """Two-sided p of a sum of differences among all changes of their signs: McNemar's exact test where all are ±1."""
    if not len(differences):
        return 1.0
    sums = np.array(list(product((-1, 1), repeat=len(differences)))) @ differences
    return float((np.abs(sums) >= abs(differences.sum()) - 1e-9).mean())


def _mean(arms: list[Array], signs: list[float]) -> CrossedMean:
    """Σ sign × mean of the arm, with its variance: problems are common to the arms, trainings are not."""
    problems = arms[0].shape[1]
    trainings = max(len(arm) for arm in arms)
    each = sum((sign * arm.mean(0) for arm, sign in zip(arms, signs, strict=True)), np.zeros(problems))
    value = float(each.mean()) if problems else math.nan
    absent = CrossedMean(value, math.nan, math.nan, math.nan, math.nan, problems, trainings, math.nan, math.nan)
    if problems < 2:
        return absent
    of_problems = float(each.var(ddof=1)) / problems
    parts = [(of_problems, problems - 1)]
    own_parts: list[tuple[float, int]] = []
    for arm in arms:
        if (count := len(arm)) < 2:
            continue
        means = arm.mean(1)
        own = float(means.var(ddof=1)) / count
        rest = arm - means[:, None] - arm.mean(0) + arm.mean()
        freedom = (count - 1) * (problems - 1)
        own_parts.append((own, count - 1))
        parts.append((-float(np.square(rest).sum()) / freedom / arm.size, freedom))
    of_trainings, df_trainings = _summed(own_parts)
    total, df = _summed(parts + own_parts)
    for component in ((of_problems, problems - 1.0), (of_trainings, df_trainings)):
        total, df = max((total, df), component, key=lambda one: one[0])
    return replace(
        absent,
        se=math.sqrt(total),
        df=max(df, 1.0),
        se_problems=math.sqrt(of_problems),
        se_trainings=math.sqrt(of_trainings) if trainings > 1 else math.nan,
    )


def _told(distances: Array) -> float:
    """How many problems a sum of distances rests on: (Σd)²/Σd², their number where all are alike (Kish 1965)."""
    squares = float(np.square(distances).sum())
    return float(distances.sum()) ** 2 / squares if squares else 0.0


def _summed(parts: list[tuple[float, int]]) -> tuple[float, float]:
    """The sum of variances (or of what is taken off) and its degrees of freedom, by Satterthwaite."""
    total = sum(component for component, _ in parts)
    squares = sum(component**2 / freedom for component, freedom in parts)
    return total, total**2 / squares if squares else float(max((freedom for _, freedom in parts), default=1))


def _wilson(share: float, trials: float, t: float) -> tuple[float, float]:
    """Wilson's interval for a share of so many trials, with the quantile t; the share itself for infinitely many."""
    if math.isinf(trials):
        return share, share
    spread = t * math.sqrt(share * (1 - share) / trials + t**2 / (4 * trials**2))
    centre, scale = share + t**2 / (2 * trials), 1 + t**2 / trials
    return max((centre - spread) / scale, 0.0), min((centre + spread) / scale, 1.0)
