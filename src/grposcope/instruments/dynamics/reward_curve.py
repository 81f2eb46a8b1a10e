"""Reward curves: checked and cleaned, averaged, and smoothed by local lines.

Rows whose step or reward is not finite are dropped; of repeated steps, which a restarted run leaves, the last
one counts. Both are said in `notes`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grposcope.core.errors import UserError
from grposcope.maths.timeseries.noise import Array

LEAST = 10
"""Points that a fit needs at least."""


@dataclass(frozen=True)
class RewardCurve:
    """Increasing steps (n,), rewards (n,), and notes on what had to be mended."""

    steps: Array
    reward: Array
    notes: tuple[str, ...] = ()

    @property
    def constant(self) -> bool:
        """Whether every reward is the same."""
        return bool(np.ptp(self.reward) == 0)

    @property
    def share(self) -> Array:
        """Share of the run (n,) that has passed at each step, from 0 to 1."""
        return np.asarray((self.steps - self.steps[0]) / (self.steps[-1] - self.steps[0]))

    @property
    def spacing(self) -> float:
        """The usual distance between logged steps."""
        return float(np.median(np.diff(self.steps)))


def clean(steps: ArrayLike, reward: ArrayLike) -> RewardCurve:
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
        notes.append(f"{int((~good).sum())} rows without a finite step and reward were left out")
    t, y = t[good], y[good]
    if len(t) > 1 and not (np.diff(t) > 0).all():
        order = np.argsort(t, kind="stable")
        t, y = t[order], y[order]
        last = np.append(np.diff(t) > 0, True)
        if not last.all():
            notes.append(f"{int((~last).sum())} steps are repeated (a restart?); the last value of each counts")
        else:
            notes.append("steps were out of order and were sorted")
        t, y = t[last], y[last]
    if len(t) < LEAST:
        raise UserError(f"a curve needs {LEAST} points or more, and the log has {len(t)}; log more steps")
    return RewardCurve(t, y, tuple(notes))


def averaged(series: RewardCurve, most: int) -> RewardCurve:
    """At most `most` points, each the mean of equally many neighbours; the curve itself where it has no more points.

    What does not divide evenly goes to the first point, so that the last ones, which a forecast starts from, are
    alike. Noise and intervals are then those of such means; `notes` says so.
    """
    n = len(series.reward)
    size = -(-n // most)
    if size == 1:
        return series
    begins = np.append(0, np.arange(size + n % size, n, size))
    counts = np.diff(np.append(begins, n))
    note = f"each point is the mean of {size:,} logged rewards, and the intervals are for such means"
    return RewardCurve(np.add.reduceat(series.steps, begins) / counts, np.add.reduceat(series.reward, begins) / counts,
                  (*series.notes, note))  # fmt: skip


def each_batch(series: RewardCurve, interval: int) -> RewardCurve:
    """One point per batch where `interval` optimiser steps share the rollouts and a log repeats their reward.

    Repeats would pass for a curve without noise. A log that does not repeat rewards is returned as it is.
    """
    changes = np.diff(series.reward) != 0
    if interval < 2 or changes.mean() > 1.5 / interval:
        return series
    batch = (series.steps - series.steps[0]) // interval
    first = np.append(True, np.diff(batch) > 0)
    note = f"{interval} steps share a batch of rollouts, so each batch is one point"
    return RewardCurve(series.steps[first], series.reward[first], (*series.notes, note))
