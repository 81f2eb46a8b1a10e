"""By how much two runs differ, and where they part: the difference of each metric, against autocorrelated noise.

On the steps that both runs have, d_t = b_t − a_t. The runs diverge in a metric if d differs late from 0 or from how it
began; p is twice the least of the two-sided tests, adjusted by Holm's method over metrics. The step is the
onset of d (`signs.onset`), given where its interval is short (SHORT): a constant offset and a slow drift begin nowhere.
Only columns of one name are compared, since variants of a quantity
have other definitions. Method of this project; no publication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.metrics import LOGGED, METRICS
from grposcope.core.run import Run
from grposcope.maths.holm import holm
from grposcope.maths.timeseries import change
from grposcope.maths.timeseries.noise import Array
from grposcope.signs import onset
from grposcope.signs.quantities import LEAST

COMPARED = (
    "reward", "reward_after_kl", "reward_std", "dead_fraction", "entropy", "kl", "kl_loss", "length", "truncated",
    "at_limit", "grad_norm", "clip_fraction",
)  # fmt: skip
"""Metrics that are compared."""


BEGIN = 5
"""First common steps whose difference says whether it was there from the start."""

SHORT = 0.2
"""Share of the common steps up to which the interval of a step is short enough for the step to be given."""


@dataclass(frozen=True)
class MetricDifference:
    """Difference of the second run from the first in one metric.

    difference, se: mean over the last fifth of the common steps and its standard error. first, second: means of the two
    runs over the same steps. p, adjusted: of no divergence, before and after Holm's method. step: where the runs part,
    with the 95 % interval [low, high]; None where that is longer than SHORT of the steps. whole: whether it is there
    from the first steps on.
    """

    metric: str
    difference: float
    se: float
    p: float
    adjusted: float
    step: int | None
    low: int | None
    high: int | None
    first: float
    second: float
    whole: bool = False


def differences(first: Run, second: Run) -> list[MetricDifference]:
    """Differences of all metrics that both runs have on at least LEAST common steps; UserError if there are none."""
    steps, in_first, in_second = np.intersect1d(first.table["step"], second.table["step"], return_indices=True)
    measured = []
    for name in COMPARED:
        if name not in first.table or name not in second.table:
            continue
        ours, other = first.table[name][in_first], second.table[name][in_second]
        finite = np.isfinite(ours) & np.isfinite(other)
        if finite.sum() >= LEAST:
            measured.append(_measure(name, steps[finite], ours[finite], other[finite]))
    if not measured:
        raise UserError(
            f"{first.meta.source} and {second.meta.source} have {len(steps):,} steps in common, and no metric on "
            f"{LEAST} of them; compare runs that log the same metrics at {LEAST} common steps or more"
        )
    adjusted = holm([metric.p for metric in measured])
    return [replace(metric, adjusted=p) for metric, p in zip(measured, adjusted, strict=True)]


def _measure(name: str, steps: Array, first: Array, second: Array) -> MetricDifference:
    difference = second - first
    curve = change.fit(difference)
    level, shift = curve.level(), curve.change()
    p = min(1.0, 2 * min(2 * min(test.p_up, test.p_down) for test in (level, shift)))
    if level.se == 0 and level.value == 0 and shift.value == 0:
        p = 1.0
    late = slice(len(steps) - max(1, len(steps) // 5), None)
    ends = float(first[late].mean()), float(second[late].mean())
    step, low, high = _parting(steps, difference)
    begin = float(difference[:BEGIN].mean())
    whole = begin * level.value > 0 and abs(begin) > abs(level.value) / 2
    return MetricDifference(name, level.value, level.se, p, p, step, low, high, *ends, whole)


def identical(first: Run, second: Run) -> int:
    """On how many metrics that vary two runs are equal to the last digit on all common steps; 0 where one is not."""
    _, in_first, in_second = np.intersect1d(first.table["step"], second.table["step"], return_indices=True)
    pairs = [
        (first.table[name][in_first], second.table[name][in_second])
        for name in COMPARED
        if name in first.table and name in second.table
    ]
    varying = [(ours, other) for ours, other in pairs if len(np.unique(ours[np.isfinite(ours)])) > 1]
    same = all(np.array_equal(ours, other, equal_nan=True) for ours, other in pairs)
    return len(varying) if same and len(in_first) >= LEAST else 0


def constants(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """Columns that are no metric and have one value in each run, and not the same in all: settings that are logged."""
    names = dict.fromkeys(name for run in runs for name in run.table if name not in METRICS and name not in LOGGED)
    settings: dict[str, list[float | None]] = {}
    for name in names:
        values = [_constant(run, name) for run in runs]
        if None not in values and len(set(values)) > 1:
            settings[runs[0].keys.get(name, name)] = values
    return settings


def _constant(run: Run, name: str) -> float | None:
    """The one value of a column; None where it has none, or several."""
    values = run.table.get(name)
    finite = np.empty(0) if values is None else np.unique(values[np.isfinite(values)])
    return float(finite[0]) if len(finite) == 1 else None


def _parting(steps: Array, difference: Array) -> tuple[int, int, int] | tuple[None, None, None]:
    """The step where a difference begins with its interval; None where the interval is long."""
    since = onset.between(steps, difference)
    if since is None or since.last - since.first > SHORT * (steps[-1] - steps[0]):
        return None, None, None
    return since.step, since.first, since.last
