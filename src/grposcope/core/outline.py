"""Numbers that summarise the course of a metric over a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from grposcope.core.estimate import Estimate
from grposcope.core.run import Floats


@dataclass(frozen=True)
class _Outline:
    """Course of a metric: means of the first and the last tenth of the steps, extremes, and counts.

    The means have a standard error that ignores the correlation between steps, and say so in their flag. Where no
    value is finite they and the extremes are NaN. not_finite: steps whose value is NaN or infinite.
    """

    first_tenth: Estimate
    last_tenth: Estimate
    least: float
    largest: float
    steps: int
    not_finite: int


def outline(values: Floats) -> _Outline:
    """Outline of the column of a metric, with a value (n,) per step."""
    tenth = max(1, len(values) // 10)
    finite = values[np.isfinite(values)]
    return _Outline(
        _mean(values[:tenth]),
        _mean(values[-tenth:]),
        least=float(finite.min()) if len(finite) else math.nan,
        largest=float(finite.max()) if len(finite) else math.nan,
        steps=len(values),
        not_finite=len(values) - len(finite),
    )


def _mean(values: Floats) -> Estimate:
    mean = Estimate.mean(values[np.isfinite(values)].tolist())
    if mean.n < 2:
        return mean
    return Estimate(mean.value, mean.se, mean.n, "steps are not independent, so the error is a lower bound")
