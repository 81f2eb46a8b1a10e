"""Non-finite values: infinities anywhere, and a loss or gradient norm missing from a row that has all the rest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from grposcope.diagnosis.findings import OWN_METHOD, Evidence, Rule, RuleResult
from grposcope.diagnosis.quantities import Quantities
from grposcope.timeseries.noise import Array

UPDATE = ("loss", "policy_loss", "grad_norm")
"""Columns of which a missing value counts as not finite, where one is due."""


def check(quantities: Quantities) -> RuleResult:
    """One value that is not finite is enough."""
    table = quantities.run.table
    complete = _complete_rows(table)
    bad = []
    for name, column in table.items():
        wrong = np.isinf(column)
        if name in UPDATE:
            wrong = wrong | (np.isnan(column) & complete & _due(column))
        if wrong.any():
            bad.append((int(np.flatnonzero(wrong)[0]), int(wrong.sum()), name))
    if not bad:
        return RuleResult(1.0, "all values are finite")
    evidence = tuple(
        Evidence(f"values of {name} that are not finite", float(count), column=name) for _, count, name in bad
    )
    what = " and ".join(f"{name} on {count} {'row' if count == 1 else 'rows'}" for _, count, name in bad)
    lasting = any(not np.isfinite(table[name][-1]) for _, _, name in bad)
    return RuleResult(
        0.0, f"values are not finite: {what}", evidence, int(table["step"][min(bad)[0]]),
        beside="failing" if lasting else None,
    )  # fmt: skip


def _complete_rows(table: Mapping[str, Array]) -> NDArray[np.bool_]:
    """Rows that have every column that is usually logged, loss and gradient aside: the log did not cut them short."""
    usual = [np.isfinite(column) for name, column in table.items() if name not in UPDATE]
    usual = [finite for finite in usual if finite.mean() >= 0.75]
    return np.all(usual, axis=0) if usual else np.zeros(len(table["step"]), bool)


def _due(column: Array) -> NDArray[np.bool_]:
    """Rows where a value is due: all from the first value on, if half of them have one and at no regular interval."""
    logged = np.flatnonzero(np.isfinite(column))
    due = np.zeros(len(column), bool)
    gaps = np.diff(logged)
    if len(logged) >= 2 and 2 * len(logged) >= len(column) - logged[0] and ((gaps == 1).all() or np.ptp(gaps) > 0):
        due[logged[0] :] = True
    return due


RULE = Rule(
    mode="non-finite",
    needs=(),
    statistic="infinite values; NaN where a value is due",
    threshold="one is enough",
    source=OWN_METHOD,
    advice="lower the learning rate, clip the gradient, check for log(0) and for float16 overflow",
    check=check,
    proof=True,
    beside="warning",
)
