"""Columns that measure nothing: a distance between sampler and trainer that is exactly 0 in every row, and the like.

Two engines never agree to the last bit, so such a column was not measured, or compares a thing with itself. It says
nothing, which is not the same as that all is well.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from grposcope.core.run import Floats
from grposcope.core.text import visible

NOTHING: Mapping[str, float] = {
    "mismatch/k1": 0, "mismatch/k2": 0, "mismatch/k3": 0, "mismatch/log_ratio": 0, "mismatch/abs": 0,
    "mismatch/abs_max": 0, "mismatch/mult_error": 1, "mismatch/prob_diff": 0, "mismatch/chi2_token": 0,
    "mismatch/chi2_sequence": 0, "importance/ratio": 1, "importance/weight": 1, "importance/weight_min": 1,
    "importance/weight_max": 1, "importance/ess": 1, "staleness/mean": 0, "staleness/max": 0,
}  # fmt: skip
"""Metric -> its value in every row where it measures nothing."""

FEWEST = 3
"""Rows below which a column that never moves may be chance."""


def found(table: Mapping[str, Floats], defined: Mapping[str, str]) -> list[str]:
    """The keys among those `defined` (key -> metric) that measure nothing in this table."""
    return [
        key for key, metric in defined.items() if metric in NOTHING and key in table
        if _is_always(table[key], NOTHING[metric])
    ]  # fmt: skip


def _is_always(column: Floats, value: float) -> bool:
    there = column[~np.isnan(column)]
    return len(there) >= FEWEST and bool((there == value).all())


def note(keys: list[str], metrics: Mapping[str, str]) -> str:
    """That the keys are taken as not measured, in a sentence. metrics: key -> metric."""
    some = ", ".join(f"{visible(key, 60)} ({NOTHING[metrics[key]]:g})" for key in keys[:6])
    more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
    return f"equal in every row to the last digit, so treated as not measured: {some}{more}"
