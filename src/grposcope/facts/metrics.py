"""Numbers that summarise the column of a metric."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from grposcope.records import Estimate
from grposcope.runs.run import Floats


def outline(values: Floats) -> dict[str, Any]:
    """Mean of the first and of the last tenth of a column, its extremes, and the number of steps that are not finite.

    The means have a standard error that ignores the correlation between steps, and say so in their flag.
    """
    tenth = max(1, len(values) // 10)
    finite = values[np.isfinite(values)]
    return {
        "first_tenth": _mean(values[:tenth]),
        "last_tenth": _mean(values[-tenth:]),
        "least": float(finite.min()) if len(finite) else math.nan,
        "largest": float(finite.max()) if len(finite) else math.nan,
        "steps": len(values),
        "not_finite": len(values) - len(finite),
    }


def _mean(values: Floats) -> Estimate:
    mean = Estimate.mean(values[np.isfinite(values)].tolist())
    if mean.n < 2:
        return mean
    return Estimate(mean.value, mean.se, mean.n, "steps are not independent: the error is a lower bound")
