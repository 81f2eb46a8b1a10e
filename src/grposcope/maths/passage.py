"""When a level is left: the first step of a lasting passage, with an interval by resampling groups within steps.

The curve is the isotonic fit of the means by step in the direction of the change, so that noise cannot pass early and
fall back (Barlow et al. 1972). The passage is the first step at which it is a quarter of the way from its early to its
late level. The interval is of 2.5 to 97.5 % of bootstrap draws, groups being drawn with replacement within their step,
and one step wider on either side, because the fit of few groups is a staircase whose draws repeat a few steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grposcope.maths.within_groups import Floats, Ints

SHARE = 0.25
"""Share of the way from the early to the late level that has to be passed."""


@dataclass(frozen=True)
class Passage:
    """The first step past the early level, its interval, and the early and late means."""

    step: int
    low: int
    high: int
    early: float
    late: float


def passage(means: Floats, of_step: Ints, draws: int, rng: np.random.Generator) -> Passage:
    """The passage of a quantity, from its means by group (K,) and the step of each group (K,)."""
    order = np.argsort(of_step, kind="stable")
    steps, starts, per = np.unique(of_step[order], return_index=True, return_counts=True)
    values = means[order]
    weights = per.astype(np.float64)
    index, early, late = _passed(np.add.reduceat(values, starts) / per, weights)
    drawn = (rng.random((draws, len(values))) * np.repeat(per, per)).astype(np.int64) + np.repeat(starts, per)
    curves = np.add.reduceat(values[drawn], starts, axis=1) / per
    places = np.array([_passed(curve, weights)[0] for curve in curves])
    low, high = np.quantile(places, [0.025, 0.975], method="closest_observation")
    last = len(steps) - 1
    return Passage(
        int(steps[index]), int(steps[max(int(low) - 1, 0)]), int(steps[min(int(high) + 1, last)]), early, late
    )


def _passed(curve: Floats, weights: Floats) -> tuple[int, float, float]:
    """Place of the first passage of a curve (S,), and its early and late levels: of the first and last tenth."""
    tenth = max(1, len(curve) // 10)
    early = float(np.average(curve[:tenth], weights=weights[:tenth]))
    late = float(np.average(curve[-tenth:], weights=weights[-tenth:]))
    sign = 1.0 if late >= early else -1.0
    over = _isotonic(sign * curve, weights) >= sign * (early + SHARE * (late - early)) - 1e-12
    return (int(np.argmax(over)) if over.any() else len(curve) - 1), early, late


def _isotonic(values: Floats, weights: Floats) -> Floats:
    """The nondecreasing curve nearest to the values in weighted squares, by pooling adjacent violators."""
    levels: list[float] = []
    masses: list[float] = []
    counts: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        level, mass, count = value, weight, 1
        while levels and levels[-1] > level:
            before = masses.pop()
            level = (levels.pop() * before + level * mass) / (before + mass)
            mass, count = mass + before, count + counts.pop()
        levels.append(level)
        masses.append(mass)
        counts.append(count)
    return np.repeat(levels, counts)
