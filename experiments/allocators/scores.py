"""How good forecasts of success rates are: Brier score, its skill over another forecast, and calibration.

The Brier score is the mean of (r − f)² over rollouts with rewards r of 0 or 1 and the forecast f made before they were
drawn: (K/n)(1 − f)² + (1 − K/n) f² for a group with K successes of n. Part of it, the mean of p(1 − p), no forecast can
avoid, so skill, 1 − Brier/Brier of a reference, is well below 1 even for a perfect one. Intervals are bootstrapped over
problems, since groups of one problem are alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate
from grposcope.maths import resampling

Floats = NDArray[np.float64]

REPLICATES = 500


@dataclass(frozen=True)
class Skill:
    """Brier score of a forecast, that of the reference, and 1 − their quotient with its 95 % interval.

    problems: how many different ones it rests on.
    """

    brier: float
    reference: float
    skill: float
    interval: tuple[float, float]
    problems: int


@dataclass(frozen=True)
class Bin:
    """Groups of similar forecasts: their mean forecast, and the share of their rollouts that succeeded."""

    forecast: float
    observed: Estimate


@dataclass(frozen=True)
class Calibration:
    """Slope and intercept of log odds of the outcome on those of the forecast, with 95 % intervals; 1 and 0 are best.

    A slope below 1 says that forecasts are too extreme. bins: the reliability curve.
    """

    slope: float
    slope_interval: tuple[float, float]
    intercept: float
    intercept_interval: tuple[float, float]
    bins: tuple[Bin, ...]


def brier(forecast: Floats, successes: Floats, rollouts: Floats) -> Floats:
    """Sum of (r − f)² over the rollouts of each group, (N,)."""
    return successes * (1 - forecast) ** 2 + (rollouts - successes) * forecast**2


def skill(
    forecast: Floats, reference: Floats, successes: Floats, rollouts: Floats, problems: NDArray, seed: int = 0
) -> Skill:
    """Skill of a forecast over a reference on N groups; problems (N,): which one each group is of."""
    own, units = _by_problem(problems, brier(forecast, successes, rollouts), brier(reference, successes, rollouts))
    weights = resampling.bootstrap(units, REPLICATES, seed)
    ours, theirs = own.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = 1 - (weights @ own[0]) / (weights @ own[1])
        value = float(1 - ours / theirs) if theirs else float("nan")
    total = float(rollouts.sum())
    return Skill(ours / total, theirs / total, value, resampling.interval(drawn), units)


def calibration(
    forecast: Floats, successes: Floats, rollouts: Floats, problems: NDArray, bins: int = 10, seed: int = 0
) -> Calibration:
    """The reliability of a forecast on N groups, in bins of about equally many groups."""
    order = np.argsort(forecast, kind="stable")
    parts = [part for part in np.array_split(order, min(bins, len(order))) if len(part)]
    curve = [Bin(float(np.average(forecast[p], weights=rollouts[p])), _share(successes[p], rollouts[p])) for p in parts]
    x = np.log(np.clip(forecast, 1e-4, 1 - 1e-4) / (1 - np.clip(forecast, 1e-4, 1 - 1e-4)))
    fitted = _logit_line(x, successes, rollouts)
    names, owner = np.unique(problems, return_inverse=True)
    times = resampling.bootstrap(len(names), 100, seed)[:, owner]
    drawn = np.array([_logit_line(x, successes * t, rollouts * t) for t in times])
    return Calibration(
        slope=float(fitted[1]),
        slope_interval=resampling.interval(drawn[:, 1]),
        intercept=float(fitted[0]),
        intercept_interval=resampling.interval(drawn[:, 0]),
        bins=tuple(curve),
    )


def _by_problem(problems: NDArray, *sums: Floats) -> tuple[Floats, int]:
    """Sums over the groups of each problem, (len(sums), problems), and how many problems there are."""
    names, owner = np.unique(problems, return_inverse=True)
    return np.array([np.bincount(owner, part, len(names)) for part in sums]), len(names)


def _share(successes: Floats, rollouts: Floats) -> Estimate:
    """Successes per rollout, with the standard error over groups of this ratio; NaN for one group."""
    n, share = len(successes), float(successes.sum() / rollouts.sum())
    if n < 2:
        return Estimate(share, float("nan"), n, "one group")
    residual = successes - share * rollouts
    return Estimate(share, float(np.sqrt(n / (n - 1) * (residual**2).sum()) / rollouts.sum()), n)


def _logit_line(x: Floats, successes: Floats, rollouts: Floats) -> Floats:
    """Intercept and slope of the logistic regression of the outcomes on x, by Newton's method, held lightly at 0, 1."""
    design, w = np.stack([np.ones_like(x), x], -1), np.array([0.0, 1.0])
    for _ in range(12):
        m = 1 / (1 + np.exp(-np.clip(design @ w, -30, 30)))
        slope = design.T @ (successes - rollouts * m) - 1e-3 * (w - [0.0, 1.0])
        curvature = (design * (rollouts * m * (1 - m))[:, None]).T @ design + 1e-3 * np.eye(2)
        step = np.linalg.solve(curvature, slope)
        w = w + step / max(1.0, float(np.abs(step).max()))
    return w
