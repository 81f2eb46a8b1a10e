"""A reward curve made fit for fitting: checked steps, no gaps that are not gaps, and how noisy it is.

Rows whose step or reward is not finite are dropped; of repeated steps, which a restarted run leaves, the last
one counts. Both are said in `notes`. Noise is estimated from differences of neighbours, which a smooth
curve hardly touches: σ² = E (y_{i+1} − y_i)²/2, biased if the noise is autocorrelated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import median_filter

from grposcope.errors import UserError

Array = NDArray[np.float64]

LEAST = 10
"""Fewer points than this cannot be fitted."""


@dataclass(frozen=True)
class Series:
    """Increasing steps (n,), rewards (n,), and what had to be mended on the way."""

    steps: Array
    reward: Array
    notes: tuple[str, ...] = ()

    @property
    def constant(self) -> bool:
        """Whether every reward is the same."""
        return bool(np.ptp(self.reward) == 0)

    @property
    def spacing(self) -> float:
        """The usual distance between logged steps."""
        return float(np.median(np.diff(self.steps)))


def clean(steps: ArrayLike, reward: ArrayLike) -> Series:
    """Check and mend a curve; UserError where it is not numbers, not paired, or shorter than LEAST points."""
    try:
        t, y = np.asarray(steps, dtype=np.float64), np.asarray(reward, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError("steps and rewards must be numbers; check which columns are read") from None
    if t.ndim != 1 or t.shape != y.shape:
        raise UserError(f"steps and rewards must be two lists of equal length, got shapes {t.shape} and {y.shape}")
    notes = []
    good = np.isfinite(t) & np.isfinite(y)
    if not good.all():
        notes.append(f"{int((~good).sum())} rows without a finite step and reward left out")
    t, y = t[good], y[good]
    if len(t) > 1 and not (np.diff(t) > 0).all():
        order = np.argsort(t, kind="stable")
        t, y = t[order], y[order]
        last = np.append(np.diff(t) > 0, True)
        if not last.all():
            notes.append(f"{int((~last).sum())} repeated steps (a restart?): the last value of each counts")
        else:
            notes.append("steps were not in order: sorted")
        t, y = t[last], y[last]
    if len(t) < LEAST:
        raise UserError(f"{len(t)} usable points are too few for a curve, at least {LEAST} are needed; log more steps")
    return Series(t, y, tuple(notes))


def averaged(series: Series, most: int) -> Series:
    """At most `most` points, each the mean of equally many neighbours; the series itself where it is no longer.

    What does not divide evenly goes to the first point, so that the last ones, which a forecast starts from, are
    alike. Noise and intervals are then those of such means; `notes` says so.
    """
    n = len(series.reward)
    size = -(-n // most)
    if size == 1:
        return series
    begins = np.append(0, np.arange(size + n % size, n, size))
    counts = np.diff(np.append(begins, n))
    note = f"each point is the mean of {size:,} logged rewards, and so are the intervals"
    return Series(np.add.reduceat(series.steps, begins) / counts, np.add.reduceat(series.reward, begins) / counts,
                  (*series.notes, note))  # fmt: skip


def each_batch(series: Series, interval: int) -> Series:
    """One point per batch where `interval` optimiser steps share the rollouts and a log repeats their reward.

    Repeats would pass for a curve without noise. A log that does not repeat rewards is returned as it is.
    """
    changes = np.diff(series.reward) != 0
    if interval < 2 or changes.mean() > 1.5 / interval:
        return series
    batch = (series.steps - series.steps[0]) // interval
    first = np.append(True, np.diff(batch) > 0)
    note = f"{interval} steps share a batch of rollouts: one point for each batch"
    return Series(series.steps[first], series.reward[first], (*series.notes, note))


def noise_level(reward: Array) -> float:
    """σ of the noise from differences of neighbours."""
    return float(math.sqrt(np.mean(np.diff(reward) ** 2) / 2))


def robust_noise_level(reward: Array) -> float:
    """The same from the median of differences, which rare jumps do not move; between 5 % and 100 % of `noise_level`."""
    jumps, plain = np.diff(reward), noise_level(reward)
    robust = 1.4826 * float(np.median(np.abs(jumps - np.median(jumps)))) / math.sqrt(2)
    return min(plain, max(robust, 0.05 * plain))


def without_spikes(reward: Array, window: float, width: float) -> Array:
    """Rewards held within `width` robust σ of a running median over `window` of the curve.

    A reward function that pays a rare jackpot moves the mean, but a curve must not chase it.
    """
    n = len(reward)
    size = min(max(5, int(window * n) // 2 * 2 + 1), n // 2 * 2 - 1)
    middle = median_filter(reward, size, mode="reflect")
    apart = reward - middle
    scale = 1.4826 * float(np.median(np.abs(apart - np.median(apart))))
    limit = width * max(scale, 0.1 * float(apart.std()))
    return np.asarray(middle + np.clip(apart, -limit, limit))
