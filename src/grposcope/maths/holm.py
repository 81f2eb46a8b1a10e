"""Several tests at once: p-values adjusted by Holm's method (Holm 1979), whatever the dependence between the tests."""

from __future__ import annotations

import math
from collections.abc import Sequence


def holm(p: Sequence[float]) -> list[float]:
    """P-values adjusted by Holm's method, in the order given; NaN is not counted and stays."""
    adjusted, least = [math.nan] * len(p), 0.0
    tested = sorted((i for i in range(len(p)) if not math.isnan(p[i])), key=lambda i: p[i])
    for rank, index in enumerate(tested):
        least = max(least, min(1.0, (len(tested) - rank) * p[index]))
        adjusted[index] = least
    return adjusted
