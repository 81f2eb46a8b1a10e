"""Metrics that are far from their neighbours in one row alone: a fact of that row, which says nothing of the others.

A value is far where it is _FACTOR times the running median of its neighbours or more, or that share of it or less, and
no other row of the run is half as far, in logarithms. A share of groups without signal, or of cut completions, is where
it is 1. Method of this project; no publication.
"""

from __future__ import annotations

import numpy as np

from grposcope.core.text import listed, number
from grposcope.maths.timeseries.noise import Array
from grposcope.maths.timeseries.running_median import running_median
from grposcope.signs.quantities import LEAST, NO_SPREAD, Quantities

_FACTOR = 10.0
_WINDOW = 11
_NAMES = ("grad_norm", "entropy", "length", "kl")
_SELDOM = 0.75
"""Share, of groups without signal or of cut completions, that no other row may reach where one row has all."""


def clause(quantities: Quantities, told: frozenset[int] = frozenset()) -> str:
    """Which metrics are far off in one row alone, with its step and value; empty where none is.

    told: steps of which another sentence says what they are.
    """
    far = [(name, *row) for name in _NAMES if (row := _far(quantities, name, told)) is not None]
    said = [f"{quantities.key(name)} {number(value)} at step {step:,}" for name, step, value in far]
    cut, equal = _all_in_one(quantities, "truncated"), _equal(quantities)
    if cut is not None:
        said.insert(0, f"all completions were cut at step {cut:,}")
    if equal is not None and equal not in told:
        said.insert(0, f"all groups had equal rewards at step {equal:,}")
    return f"in one row alone: {listed(said)}" if said else ""


def _far(quantities: Quantities, name: str, told: frozenset[int]) -> tuple[int, float] | None:
    """Step and value of the one row that is far from its neighbours; None where there is none, or several."""
    series = quantities.get(name, LEAST)
    if series is None or (series.values <= 0).mean() > 1 / len(series):
        return None
    low = float(series.values[series.values > 0].min())
    logs = np.log(np.maximum(series.values, low / 2 or low))
    row = _alone(np.abs(logs - running_median(logs, _WINDOW)), float(np.log(_FACTOR)))
    if row is None or row < _WINDOW or int(series.steps[row]) in told:  # first rows are apart for other reasons
        return None
    return int(series.steps[row]), float(series.values[row])


def _alone(away: Array, least: float) -> int | None:
    """The row of the largest of these distances (n,), `least` or more, where no other is half of it; else None."""
    row = int(np.argmax(away))
    return row if away[row] >= least and np.delete(away, row).max() < away[row] / 2 else None


def _equal(quantities: Quantities) -> int | None:
    """The step of the one row in which all groups had equal rewards, as logged or by their spread; else None."""
    spread = quantities.column("reward_std")
    if quantities.column("dead_fraction") is not None or spread is None or len(spread) < LEAST:
        return _all_in_one(quantities, "dead_fraction")
    rows = np.flatnonzero(np.abs(spread.values) <= NO_SPREAD)
    return int(spread.steps[rows[0]]) if len(rows) == 1 else None


def _all_in_one(quantities: Quantities, name: str) -> int | None:
    """The step of the one row in which a share is 1, where no other is _SELDOM or more; else None."""
    shares = quantities.column(name)
    if shares is None or len(shares) < LEAST:
        return None
    rows = np.flatnonzero(shares.values == 1)
    return int(shares.steps[rows[0]]) if len(rows) == 1 and np.delete(shares.values, rows).max() < _SELDOM else None
