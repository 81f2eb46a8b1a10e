"""Whether and where two runs diverge: the difference of each metric, tested against autocorrelated noise.

On the steps that both runs have, d_t = b_t − a_t. The runs diverge in a metric if d differs late from 0 or from how it
began; p is twice the least of the two-sided tests, adjusted by Holm's method over metrics. The step is the posterior
median of where a broken line through d breaks. Only columns of one name are compared, since variants of a quantity
have other definitions. Method of this project; no publication.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from grposcope.diagnosis.diagnose import holm
from grposcope.diagnosis.quantities import LEAST
from grposcope.errors import UserError
from grposcope.runs.run import Run
from grposcope.timeseries import change
from grposcope.timeseries.noise import Array

COMPARED = (
    "reward", "reward_after_kl", "reward_std", "dead_fraction", "entropy", "kl", "kl_loss", "length", "truncated",
    "at_limit", "grad_norm", "clip_fraction",
)  # fmt: skip
"""Metrics that are compared."""


@dataclass(frozen=True)
class MetricDifference:
    """Difference of the second run from the first in one metric.

    difference, se: mean over the last fifth of the common steps and its standard error. p, adjusted: of no divergence,
    before and after Holm's method. step: where the runs diverge, with the 95 % interval [low, high].
    """

    metric: str
    difference: float
    se: float
    p: float
    adjusted: float
    step: int
    low: int
    high: int


def differences(first: Run, second: Run) -> list[MetricDifference]:
    """Differences of all metrics that both runs have on at least LEAST common steps; UserError if there are none."""
    steps, in_first, in_second = np.intersect1d(first.table["step"], second.table["step"], return_indices=True)
    measured = []
    for name in COMPARED:
        if name not in first.table or name not in second.table:
            continue
        difference = second.table[name][in_second] - first.table[name][in_first]
        finite = np.isfinite(difference)
        if finite.sum() >= LEAST:
            measured.append(_measure(name, steps[finite], difference[finite]))
    if not measured:
        raise UserError(
            f"{first.meta.source} and {second.meta.source} share {len(steps)} steps and no metric on {LEAST} of them; "
            "compare runs that log the same metrics at the same steps"
        )
    adjusted = holm([metric.p for metric in measured])
    return [replace(metric, adjusted=p) for metric, p in zip(measured, adjusted, strict=True)]


def _measure(name: str, steps: Array, difference: Array) -> MetricDifference:
    curve = change.fit(difference)
    level, shift = curve.level(), curve.change()
    p = min(1.0, 2 * min(2 * min(test.p_up, test.p_down) for test in (level, shift)))
    if level.se == 0 and level.value == 0 and shift.value == 0:
        p = 1.0
    onset = change.onset(difference)
    step, low, high = (int(steps[min(row, len(steps) - 1)]) for row in (onset.row, onset.low, onset.high))
    return MetricDifference(name, level.value, level.se, p, p, step, low, high)
