"""What became of a run: whether it learned and held it, from one outcome, before any rule is asked.

Method of this project; no publication. The outcome is the held-out score where there is one up to the end of the run,
and else the training reward. Three levels of it are compared: the first part, the last part, and the best of the parts
in between. Levels of the training reward are those of its mean curve (`timeseries.change`), with an error that allows
for wandering; levels of evaluations are means of evaluations, with the error that the log gives them or that their
neighbours show, since an evaluation says where the run was and not where it was drawn to.

    learned   the end is above the beginning, and not below the best part by LOST of what was gained
    solved    it did not rise, but ended in the upper part of its range, SOLVED
    stalled   it rose, stands still since the middle of the run, and gained at most HALF of what there was to gain
    lost      it rose, and lost at least the share LOST of it again
    fell      the end is below the beginning or below an earlier level, and nothing was gained before
    flat      it did not change by as much as a tenth of its range

Where none of these can be shown the fate is "cannot tell". Rises are tested at RISES, falls at FALLS, those from the
best part times the number of parts that it was chosen from: a fall is a warning by itself, a rise is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr, stdtr

from grposcope.records import Estimate
from grposcope.timeseries import level
from grposcope.timeseries.change import EARLY, LATE, MeanCurve
from grposcope.timeseries.noise import Array, Contrast, harmonic_mean

Fate = Literal["learned", "solved", "stalled", "lost", "fell", "flat", "cannot tell"]

RISES = 0.05
"""One-sided p-value of a rise between the ends."""

FALLS = 0.01
"""One-sided p-value of a fall between the ends, or, times the number of parts, from the best part."""

LOST = 0.25
"""Share of what was gained that is lost at least where a run lost it again."""

HALF = 0.5
"""Share of what there was to gain; a run that stands still at or below it has stalled."""

SOLVED = 0.8
"""Share of the range above which there is little left to gain."""

STILL = 0.1
"""A change by less than this share of the range is none."""

BEGIN = (0.0, 0.0)
"""The first evaluation, which often is of the policy before training."""

MIDDLE = (0.4, 0.6)
"""The middle of the run, since which a run that stalled stands still."""

PARTS = tuple((start / 10, start / 10 + 0.2) for start in range(7))
"""Parts of the run that the best level is looked for in; four of them do not overlap."""

DISJOINT = 4
"""Number of parts that do not overlap, which p-values of the best part are multiplied by."""


NOTHING = Estimate(math.nan, math.nan, 0)
"""A level that is not known."""


@dataclass(frozen=True)
class Outcome:
    """What became of a run, and the levels that say so.

    name: the metric; heldout: whether it is an evaluation. start, end, best: levels of the first, last and best part,
    with the standard error of each. best_step: the middle of the best part. gained: share of what there was to gain at
    the start that is gained at the end, NaN where the range is not known. still: whether it stands still since the
    middle of the run, at the step middle. first, last: steps of the first and last value.
    """

    fate: Fate
    name: str = ""
    heldout: bool = False
    start: Estimate = NOTHING
    end: Estimate = NOTHING
    best: Estimate = NOTHING
    best_step: int = 0
    gained: float = math.nan
    still: bool = False
    middle: int = 0
    first: int = 0
    last: int = 0

    @property
    def well(self) -> bool:
        """Whether the run learned, or had nothing left to learn, and held it."""
        return self.fate in ("learned", "solved")

    @property
    def by_heldout(self) -> bool:
        """Whether a held-out score shows that the run learned and held it, so that the reward need not show it."""
        return self.well and self.heldout

    @property
    def gain(self) -> float:
        """The best level less the first."""
        return self.best.value - self.start.value


FEWEST = 4
"""Evaluations without a standard error below which nothing is told."""

Ends = tuple[float, float]
"""Least and largest value that a metric can have."""

Compare = Callable[[level.Span | None, level.Span, float], Contrast]
"""The test of the mean over the second span less that over the first (0 for None) less a constant."""


def of_reward(
    steps: Array, curve: MeanCurve, line: MeanCurve | None, ends: Ends | None, margin: float | None, name: str
) -> Outcome:
    """Outcome by the training reward at steps (n,), from its mean curve and, where no bends are evident, its line.

    ends: least and largest reward there can be, None if unknown. margin: a change of the reward that is none, None if
    that is not known either.
    """

    def compare(first: level.Span | None, last: level.Span, minus: float) -> Contrast:
        if first is None:
            return curve.level(last, minus)
        seen = curve.change(first, last, minus=minus)
        if line is None or (first, last) != (EARLY, LATE):
            return seen
        straight = line.change(first, last, minus=minus)
        up, down = (harmonic_mean(pair) for pair in ([seen.p_up, straight.p_up], [seen.p_down, straight.p_down]))
        return Contrast(seen.value, seen.se, up, down)

    return _outcome(compare, steps, ends, margin, name, heldout=False)


def of_evaluations(
    steps: Array, values: Array, errors: Array, ends: Ends | None, margin: float | None, name: str
) -> Outcome:
    """Outcome by a held-out score, finite values (n,) at steps (n,) with standard errors (n,), NaN where unknown."""
    n, known = len(values), bool(np.isfinite(errors).all() and (errors > 0).any())
    if n < (2 if known else FEWEST):
        return Outcome("cannot tell", name, heldout=True)
    variances = np.square(errors) if known else np.full(n, second_difference_variance(values))
    df = math.inf if known else max(0.51 * (n - 2), 1.0)

    def compare(first: level.Span | None, last: level.Span, minus: float) -> Contrast:
        parts = [level.rows(n, span, least=1) for span in (first, last) if span is not None]
        means = [float(values[rows].mean()) for rows in parts]
        error = math.sqrt(sum(float(variances[rows].sum()) / (rows.stop - rows.start) ** 2 for rows in parts))
        value = means[-1] - (means[0] if first is not None else 0.0) - minus
        return contrast(value, error, df)

    return _outcome(compare, steps, ends, margin, name, heldout=True)


def _outcome(
    compare: Compare, steps: Array, ends: Ends | None, margin: float | None, name: str, heldout: bool
) -> Outcome:
    """The outcome by any way to compare parts of a run."""
    first = BEGIN if heldout else EARLY
    start, end = compare(None, first, 0.0), compare(None, LATE, 0.0)
    part = max(PARTS, key=lambda span: compare(None, span, 0.0).value)
    best = compare(None, part, 0.0)
    best = best if best.value > end.value else end
    rise, loss = compare(first, LATE, 0.0), compare(part, LATE, 0.0)
    rose, sank = rise.p_up < RISES, rise.p_down < FALLS
    gained = math.nan
    if ends is not None and ends[1] > start.value:
        gained = (end.value - start.value) / (ends[1] - start.value)
    still = _still(compare, ends, end.value)
    worth = margin / 2 if margin is not None else 0.0
    falling = DISJOINT * loss.p_down < FALLS and -loss.value > worth
    gain = compare(first, part, 0.0)
    fate: Fate = "cannot tell"
    if falling and gain.p_up < RISES and -loss.value >= LOST * gain.value:
        fate = "lost"
    elif (falling and gain.p_up >= RISES) or (sank and -rise.value > worth):
        fate = "fell"
    elif rose and -loss.value >= LOST * gain.value:
        fate = "cannot tell"  # it may have lost what it had
    elif rose:
        fate = "stalled" if still and gained <= HALF else "learned"
    elif ends is not None and end.value > ends[0] + SOLVED * (ends[1] - ends[0]):
        fate = "solved"
    elif margin is not None and max(compare(first, LATE, margin).p_down, compare(first, LATE, -margin).p_up) < RISES:
        fate = "flat"
    n = len(steps)
    begin, last, top = (Estimate(part.value, part.se, n) for part in (start, end, best))
    best_step = int(steps[min(int(sum(part) / 2 * n), n - 1)]) if best is not end else int(steps[-1])
    return Outcome(
        fate,
        name,
        heldout,
        begin,
        last,
        top,
        best_step,
        gained,
        still,
        int(steps[n // 2]),
        int(steps[0]),
        int(steps[-1]),
    )


def second_difference_variance(y: Array) -> float:
    """Variance of white noise from second differences of y (n,), n of 3 or more; straight lines do not move it.

    E(y₋ − 2 y₀ + y₊)² = 6 σ²; it has about 0.51 n degrees of freedom (Gasser, Sroka & Jennen-Steinmetz 1986).
    """
    return float(np.square(np.diff(y, 2)).mean()) / 6


def contrast(value: float, error: float, df: float) -> Contrast:
    """The test of a value with this standard error, under Student's t; exact values are decided by the sign."""
    if error <= 1e-12 * max(abs(value), 1e-300):
        return Contrast(value, 0.0, 0.0 if value > 0 else 1.0, 0.0 if value < 0 else 1.0)
    up, down = (float(ndtr(z) if math.isinf(df) else stdtr(df, z)) for z in (-value / error, value / error))
    return Contrast(value, error, up, down)


def _still(compare: Compare, ends: Ends | None, end: float) -> bool:
    """Whether the end is above the middle by less than a fifth of what is left to gain, with 95 % confidence."""
    if ends is None or end >= ends[1]:
        return False
    return compare(MIDDLE, LATE, 2 * STILL * (ends[1] - end)).p_down < RISES and compare(MIDDLE, LATE, 0.0).p_up >= 0.01
