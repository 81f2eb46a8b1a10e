"""Other horizontal axes than steps: tokens and hours since the start, for the runs that recorded them.

A chart keeps its steps; the page maps them by straight lines between these points.
"""

from __future__ import annotations

import numpy as np

from grposcope.core.run import Floats, Run
from grposcope.render.thinning import rounded

POINTS = 200
"""Points of an axis, at most."""

COVERED = 0.5
"""Share of the steps that must have a value before a sum over all steps is estimated."""


def of_run(run: Run) -> dict[str, dict[str, list[float | None]]]:
    """Name of the axis -> steps, and the tokens or hours since the start at each; only axes that were recorded."""
    found = {"tokens": _tokens(run), "hours": _hours(run)}
    axes = {}
    for name, values in found.items():
        finite = np.flatnonzero(np.isfinite(values))
        if len(finite) > 1 and np.all(np.diff(values[finite]) >= 0) and values[finite[-1]] > values[finite[0]]:
            shown = finite[np.unique(np.linspace(0, len(finite) - 1, POINTS).astype(int))]
            axes[name] = {"step": rounded(run.table["step"][shown], 9), "value": rounded(values[shown], 7)}
    return axes


def _tokens(run: Run) -> Floats:
    """Tokens since the start at every row, NaN where not known: as recorded, or the sum of those of batches."""
    if "tokens_total" in run.table:
        return run.table["tokens_total"]
    return next((_total(run, name) for name in ("tokens_batch", "tokens") if name in run.table), _unknown(run))


def _hours(run: Run) -> Floats:
    """Hours since the first row by the clock, pauses included; without one, the sum of the seconds of the steps."""
    if "time" in run.table and np.isfinite(run.table["time"]).sum() > 1:
        since: Floats = (run.table["time"] - np.nanmin(run.table["time"])) / 3600
        return since
    return _total(run, "seconds_step") / 3600 if "seconds_step" in run.table else _unknown(run)


def _total(run: Run, name: str) -> Floats:
    """Running sum of a column; steps without a value count as their neighbours. NaN where most steps have none."""
    step, column = run.table["step"], run.table[name]
    finite = np.isfinite(column)
    if not finite.any() or np.any(np.diff(step) <= 0) or finite.sum() < COVERED * (step[-1] - step[0] + 1):
        return _unknown(run)
    every = np.arange(step[0], step[-1] + 1)
    total = np.cumsum(np.interp(every, step[finite], column[finite]))
    totals: Floats = np.interp(step, every, total)
    return totals


def _unknown(run: Run) -> Floats:
    return np.full(run.steps, np.nan)
