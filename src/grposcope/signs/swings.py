"""Oscillation: the reward swings, and the swings stay or grow.

In theory the multipliers e^{γ ± iω} of the training dynamics lie near or outside the unit circle. Two statistics are
computed, and the lesser p-value is doubled: an F test of a sinusoid (`maths.timeseries.periodogram`), which says more
where it is sure, and the likelihood of a broad peak in the spectrum (`maths.timeseries.spectral_peak`), for swings
whose period changes.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Grade, Interval, Sign, cannot_tell, measured
from grposcope.maths.timeseries import periodogram, spectral_peak
from grposcope.maths.timeseries.noise import Array, running_mean
from grposcope.maths.timeseries.periodogram import SEEN, Oscillation
from grposcope.signs import onset, run_outcome
from grposcope.signs.outages import without_outages
from grposcope.signs.quantities import MetricSeries, Quantities
from grposcope.signs.thresholds import STILL

SHARE = 0.2
"""An oscillation that explains a smaller share of the detrended variance is not flagged."""

TINY = 0.01
"""Amplitude, as a share of the reward's range, below which a swing may be rounding and is none."""

SWINGS = 2
"""Full swings, up and down, below which a series is a hump or a collapse and no oscillation."""

LEG = 0.2
"""Share of the amplitude at the end that a leg of a swing has at least: the first swings of a growing one are small."""

SURE = 0.01
"""Posterior chance of γ ≤ 0 below which swings grow, and of γ ≥ 0 below which they fade."""


def _check(quantities: Quantities) -> Finding:
    """Swings of the reward that last; their fault is "growing oscillation" where they surely grow."""
    reward = _thinned(_before_a_fall(without_outages(quantities.require("reward"))))
    sinusoid, any_shape = periodogram.oscillation(reward.values), spectral_peak.oscillation(reward.values)
    if sinusoid is None or any_shape is None:
        return cannot_tell("the reward is constant, or the log has too few rows to show an oscillation")
    swing = sinusoid if lasting(sinusoid) <= max(lasting(any_shape), SEEN) else any_shape
    steps_per_row = float(np.median(np.diff(reward.steps))) if len(reward) > 1 else 1.0
    period = swing.period * steps_per_row
    growing, fading = swing.growing < SURE, swing.fading < SURE
    evidence = (
        Sign("period in steps", period),
        Sign("amplitude at the end", swing.amplitude, column=reward.name),
        Sign("share of the detrended variance", swing.share, limit=f"counts from {SHARE:g}"),
        Sign("modulus of the multiplier per row", swing.root.value, swing.root.se, "grows above 1"),
    )
    p = min(1.0, 2 * lasting(sinusoid), 2 * lasting(any_shape))
    span = quantities.reward_margin(1.0)
    if span is not None and swing.amplitude < TINY * span:
        return measured(1.0, f"the reward's swings have an amplitude of {swing.amplitude:.2g}, too small to matter")
    if p < 0.5 and legs(reward.values[swing.first : swing.last + 1], swing.period, LEG * swing.amplitude) < 2 * SWINGS:
        return measured(1.0, "the reward does not swing up and down twice, so that it is a bend and no oscillation")
    if p < 0.5 and (even := periodogram.evened(reward.values)) is not None:
        looks = periodogram.oscillation(even), spectral_peak.oscillation(even)
        p = max(p, min(1.0, *(2 * lasting(look) for look in looks if look is not None)))
    course = "grow" if growing else "fade" if fading else "do not die out"
    because = (
        f"the reward swings with a period of {period:.3g} steps and an amplitude of {swing.amplitude:.2g}, and the "
        f"swings {course}"
    )
    if p > 0.05:
        because = "the reward does not oscillate more than slow random drift would"
    begins = partial(_began, reward, swing.period)
    fault = "growing oscillation" if growing else "oscillation"
    brief = f"reward swings by ± {swing.amplitude:.2g} every {period:.2g} steps"
    return measured(
        p, because, evidence, fault, grades=grades(swing.amplitude, growing, quantities), brief=brief,
        begins=begins,
    )  # fmt: skip


def legs(values: Array, period: float, least: float) -> int:
    """Ways up and down of at least this size, in turn, of values (n,) averaged over a sixth of a period of rows."""
    width = max(round(period / 6), 1)
    smooth = np.convolve(values, np.full(width, 1 / width), "valid")
    count, up = 0, 0
    low = high = float(smooth[0])
    for value in smooth.tolist():
        low, high = min(low, value), max(high, value)
        if up <= 0 and value - low >= least:
            count, up, high = count + 1, 1, value
        elif up >= 0 and high - value >= least:
            count, up, low = count + 1, -1, value
    return count


def _began(reward: MetricSeries, period: float) -> Interval | None:
    """Since when the reward swings: the onset of the logarithms of its spread within each period."""
    rows = max(round(period), 2)
    first = len(reward) % rows
    cycles = reward.values[first:].reshape(-1, rows)
    spread = np.log(np.maximum(cycles.std(1), 1e-12))
    return onset.between(reward.steps[first::rows], spread, 1, shown=False)


def _before_a_fall(reward: MetricSeries) -> MetricSeries:
    """The reward before a sudden fall that lasts, which is no swing; the whole of it where there is none."""
    fall = reward.present.fall
    return reward if fall is None else MetricSeries(reward.name, reward.steps[:fall], reward.values[:fall])


def _thinned(reward: MetricSeries) -> MetricSeries:
    """The reward at rows that share none of what they are means of, where each row is a running mean; else all of it.

    Running means of noise swing with periods of their own.
    """
    every = running_mean(reward.values)
    first = (len(reward) - 1) % every
    return MetricSeries(reward.name, reward.steps[first::every], reward.values[first::every])


def grades(amplitude: float, growing: bool, quantities: Quantities) -> tuple[Grade, Grade]:
    """Grades of swings of this amplitude beside learning that goes well, and where it does not.

    Peak to trough is compared with what the run gained, or with half the reward's range where it gained less than
    STILL of it. A swing that takes back all of that fails, one that takes back half or grows is a warning, and one that
    takes back less than an eighth is a note whatever became of the run; at most a warning where it grows. A run that
    goes on, and has not fallen, has not failed by what comes back.
    """
    outcome, span = run_outcome.of_run(quantities.run), quantities.reward_margin(1.0) or 0.0
    gained = outcome.gain if outcome.gain > STILL * span and not outcome.heldout else span / 2
    share = 2 * amplitude / gained if gained > 0 else 1.0
    if quantities.run.meta.status == "running" and outcome.direction != "down" and (share >= 1 or growing):
        return ("warning", "warning") if share >= 0.125 else ("note", "warning")
    if share >= 1:
        return "failing", "failing"
    if growing:
        return ("warning", "failing") if share >= 0.125 else ("note", "warning")
    return ("warning", "warning") if share >= 0.5 else ("note", "warning") if share >= 0.125 else ("note", "note")


def lasting(swing: Oscillation) -> float:
    """The p-value of a swing; 1 where the swing explains little of the variance or fades."""
    return swing.p if swing.share >= SHARE and swing.fading >= SURE else 1.0


TEST = LogTest(
    "oscillation",
    _check,
    needs=("reward",),
    statistic="F test of a sinusoid with exponential envelope against AR(1) + white noise, smallest p × frequencies × "
    "windows; likelihood of a broad spectral peak against the largest such noise, × windows; both × 2",
    threshold=f"p < α and {SHARE:g} of the detrended variance; growing: P(γ ≤ 0) < {SURE:g}; from 40 rows, 3 cycles",
)
