"""Values of a table that are not finite, each told from one that nobody logged.

Both are NaN in a column. One that a trainer wrote has bits of its own (`core.files.WRITTEN_NAN`), which every reader
gives it; an empty cell and a key that is not in the row are absent. JSON's null has bits of its own, too
(`WRITTEN_NULL`): many writers have no other way to write NaN, so that a null counts in the quantities of the update
where a value is due, and is absent elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.core.files import WRITTEN_NAN, WRITTEN_NULL, json_number
from grposcope.core.metrics import VARIANTS

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

UPDATE = (*VARIANTS["loss"], "grad_norm")
"""Columns of the update, of which a null counts as not finite, where a value is due."""

REWARD = VARIANTS["reward"]
"""Columns of the reward."""

MEASURED = (*VARIANTS["kl"], *VARIANTS["kl_old"], *VARIANTS["entropy"])
"""Columns that are measured of the policy, and that a trainer may write as NaN where it does not measure them."""

COUNTED = frozenset((*UPDATE, *REWARD, *MEASURED))
"""Columns of which a NaN that was written counts as not finite."""

STOPPED = 5
"""Rows up to the end with nulls from which on a column of the update has stopped."""

_NAN, _NULL = (np.array([value]).view(np.int64)[0] for value in (WRITTEN_NAN, WRITTEN_NULL))


def is_written_nan(column: Floats) -> Bools:
    """Whether each value (N,) is NaN because a trainer wrote it so."""
    written: Bools = np.ascontiguousarray(column).view(np.int64) == _NAN
    return written


def is_written_null(column: Floats) -> Bools:
    """Whether each value (N,) is NaN because a trainer wrote null in its place."""
    written: Bools = np.ascontiguousarray(column).view(np.int64) == _NULL
    return written


def not_finite_in(row: Mapping[str, Any]) -> set[str]:
    """Metrics of COUNTED that a row has, but not as a finite number; a whole table may show that some have no term."""
    return {name for name in COUNTED & row.keys() if not math.isfinite(json_number(row[name]) or 0.0)}


def not_finite(table: Mapping[str, Floats]) -> dict[str, Bools]:
    """Rows (N,) whose value is infinite, was written as NaN, or as null where one is due, for each metric with any.

    A NaN that was written counts in the columns COUNTED, unless it stands for a value that was not measured: of
    MEASURED in all rows, of any column in all but rows at a regular interval of two or more.
    A value is due in a row that has every column that is usually logged, in a column of UPDATE that has a value from
    some row on in at least half of the rows and at no regular interval; and where such a column stops for good, for
    STOPPED rows or more, while the reward goes on. A row that lacks the key says nothing.
    """
    if not len(table["step"]):
        return {}
    values, complete = {}, None
    for name, column in table.items():
        wrong = np.isinf(column)
        if name in COUNTED and np.isnan(column).any():
            if (written := is_written_nan(column)).any() and not _stands_for_absent(name, column):
                wrong |= written
            if name in UPDATE and (null := is_written_null(column)).any():
                complete = _complete_rows(table) if complete is None else complete
                wrong |= null & ((complete & _due(column)) | _stopped(column, table))
        if wrong.any():
            values[name] = wrong
    return values


def _stands_for_absent(name: str, column: Floats) -> bool:
    """Whether the NaN of a column mean that nothing was measured: none is a number, or those at equal distances are."""
    logged = np.flatnonzero(~np.isnan(column))
    if not len(logged):
        return name in MEASURED
    gaps = np.diff(logged)
    every = int(gaps[0]) if len(gaps) >= 2 else 1
    return every > 1 and bool((gaps == every).all()) and logged[0] < every and len(column) - logged[-1] <= every


def _complete_rows(table: Mapping[str, Floats]) -> Bools:
    """Rows that have every column that is usually logged, loss and gradient aside: the log did not cut them short."""
    usual = [np.isfinite(column) for name, column in table.items() if name not in UPDATE]
    usual = [finite for finite in usual if 4 * finite.sum() >= 3 * len(finite) > 0]
    return np.all(usual, axis=0) if usual else np.zeros(len(table["step"]), bool)


def _stopped(column: Floats, table: Mapping[str, Floats]) -> Bools:
    """Rows behind the last value of a column that was logged beside the reward in every row before; none where it was
    not, or where there are fewer than STOPPED of them."""
    finite = np.isfinite(column)
    rewards = [np.isfinite(table[name]) for name in REWARD if name in table]
    if not finite.any() or not rewards:
        return np.zeros(len(column), bool)
    first, last = (int(index) for index in np.flatnonzero(finite)[[0, -1]])
    after = np.arange(len(column)) > last
    logged = bool(finite[first : last + 1].all()) and last - first >= STOPPED
    paid = np.any(rewards, axis=0)[first:]
    return after if logged and after.sum() >= STOPPED and bool(paid.all()) else np.zeros(len(column), bool)


def _due(column: Floats) -> Bools:
    """Rows where a value is due: all from the first value on, if half of them have one and at no regular interval."""
    logged = np.flatnonzero(np.isfinite(column))
    due = np.zeros(len(column), bool)
    gaps = np.diff(logged)
    if len(logged) >= 2 and 2 * len(logged) >= len(column) - logged[0] and ((gaps == 1).all() or np.ptp(gaps) > 0):
        due[logged[0] :] = True
    return due
