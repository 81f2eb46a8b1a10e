"""Which metric each key is, by the trainer's definitions, its version and settings, and what the user says.

Columns that measure nothing are done without: a distance between sampler and trainer that is exactly 0 in every row,
and the like. Two engines never agree to the last bit, so such a column was not measured, or compares a thing with
itself. It says nothing, which is not the same as that all is well. So are those that this version of the engine logs
wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from grposcope.core.run import Floats
from grposcope.core.text import visible
from grposcope.logs.table import LogTable
from grposcope.logs.trainers import trainer_named

NOTHING: Mapping[str, float] = {
    "mismatch/k1": 0, "mismatch/k2": 0, "mismatch/k3": 0, "mismatch/log_ratio": 0, "mismatch/abs": 0,
    "mismatch/abs_max": 0, "mismatch/mult_error": 1, "mismatch/prob_diff": 0, "mismatch/chi2_token": 0,
    "mismatch/chi2_sequence": 0, "importance/ratio": 1, "importance/weight": 1, "importance/weight_min": 1,
    "importance/weight_max": 1, "importance/ess": 1, "staleness/mean": 0, "staleness/max": 0,
}  # fmt: skip
"""Metric -> its value in every row where it measures nothing."""

FEWEST = 3
"""Rows below which a column that never moves may be chance."""


def settings_and_window(table: LogTable) -> LogTable:
    """The settings of the trainer, and the number of steps that a row is the mean over, from the distance of rows."""
    settings = table.trainer.settings_of(table.log.logged, table.log.measured, table.hints.settings)
    step = table.table["step"]
    if table.log.window or not table.trainer.windowed or len(step) < 3:
        return replace(table, settings=settings, window=table.log.window or 1)
    window = int(np.median(np.diff(step)))
    note = f"each row is the mean over {window} steps (logging_steps), which hides spikes and lowers variances"
    return table.noting(*[note] * (window > 1), settings=settings, window=max(window, 1))


def metrics_of_keys(table: LogTable) -> LogTable:
    """The metric of each key, without those that measure nothing or are logged wrongly, and what follows from several.

    A key that had a name which the user gives to another is “NAME (as logged)”.
    """
    defined, assumptions = table.trainer.definitions(table.table, table.settings, table.window)
    nothing = [
        key for key, metric in defined.items()
        if metric in NOTHING and key in table.table and _is_always(table.table[key], NOTHING[metric])
    ]  # fmt: skip
    wrong = trainer_named(table.engine).defects_in(table.table, table.settings)
    without = {*nothing, *(key for defect in wrong if defect.left_out for key in defect.keys)}
    meant = {
        key: metric for key, metric in defined.items() if key not in without and metric not in table.given
    }  # fmt: skip
    for metric, key in table.given.items():
        if metric != "step":
            if metric in table.table and key != metric:
                meant[metric] = f"{metric} (as logged)"
            meant[key] = metric
    notes = [_of_nothing(table, nothing, defined)] if nothing else []
    return table.noting(
        *notes, *map(str, wrong), *assumptions,
        defined=meant, made=table.trainer.worked_out(table.table, meant), defects=tuple(one.name for one in wrong),
    )  # fmt: skip


def _is_always(column: Floats, value: float) -> bool:
    there = column[~np.isnan(column)]
    return len(there) >= FEWEST and bool((there == value).all())


def _of_nothing(table: LogTable, keys: list[str], metrics: Mapping[str, str]) -> str:
    """That the keys are taken as not measured, in a sentence. metrics: key -> metric."""
    some = ", ".join(f"{visible(table.key_in_log(key), 60)} ({NOTHING[metrics[key]]:g})" for key in keys[:6])
    more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
    return f"equal in every row to the last digit, so treated as not measured: {some}{more}"
