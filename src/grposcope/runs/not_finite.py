"""Values of a table that are not finite, told from those that nobody logged: both are NaN in a column."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

UPDATE = ("loss", "policy_loss", "grad_norm")
"""Columns of which a missing value counts as not finite, where one is due."""


def not_finite(table: Mapping[str, Floats]) -> dict[str, Bools]:
    """Rows (N,) whose value is infinite, or of the update and NaN where one is due, for each metric with any.

    A value is due in a row that has every column that is usually logged, in a column that has a value from some row on
    in at least half of the rows and at no regular interval.
    """
    if not len(table["step"]):
        return {}
    complete = _complete_rows(table)
    found = {}
    for name, column in table.items():
        wrong = np.isinf(column)
        if name in UPDATE:
            wrong = wrong | (np.isnan(column) & complete & _due(column))
        if wrong.any():
            found[name] = wrong
    return found


def _complete_rows(table: Mapping[str, Floats]) -> Bools:
    """Rows that have every column that is usually logged, loss and gradient aside: the log did not cut them short."""
    usual = [np.isfinite(column) for name, column in table.items() if name not in UPDATE]
    usual = [finite for finite in usual if 4 * finite.sum() >= 3 * len(finite) > 0]
    return np.all(usual, axis=0) if usual else np.zeros(len(table["step"]), bool)


def _due(column: Floats) -> Bools:
    """Rows where a value is due: all from the first value on, if half of them have one and at no regular interval."""
    logged = np.flatnonzero(np.isfinite(column))
    due = np.zeros(len(column), bool)
    gaps = np.diff(logged)
    if len(logged) >= 2 and 2 * len(logged) >= len(column) - logged[0] and ((gaps == 1).all() or np.ptp(gaps) > 0):
        due[logged[0] :] = True
    return due
