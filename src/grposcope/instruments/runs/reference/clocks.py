"""Clocks by which runs are held against each other: optimiser steps, tokens, or seconds since the first row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from grposcope.core.run import Floats, Run

Clock = Literal["step", "tokens", "time"]

UNITS: Mapping[Clock, str] = {"step": "step", "tokens": "token", "time": "second"}
"""Clock -> what it counts."""

_TOTAL = ("tokens_total",)
_EACH = ("tokens_generated", "tokens", "tokens_batch")
_MOMENT = ("time", "timestamp", "_timestamp", "wall_time", "_runtime")
_SECONDS = ("seconds_step",)


def of_run(run: Run, clock: Clock) -> Floats | None:
    """The clock of each row (N,), which never falls; None where the log has no such clock."""
    table = run.table
    if clock == "step":
        return np.asarray(table["step"], np.float64)
    total, each = (_TOTAL, _EACH) if clock == "tokens" else (_MOMENT, _SECONDS)
    if (column := _whole(table, total)) is not None and bool((np.diff(column) >= 0).all()):
        return column - column[0] if clock == "time" else column
    column = _whole(table, each)
    return None if column is None else np.cumsum(column)


def _whole(table: Mapping[str, Floats], names: tuple[str, ...]) -> Floats | None:
    """The first of these columns that has a value in every row; None where there is none."""
    return next((table[name] for name in names if name in table and np.isfinite(table[name]).all()), None)
