"""The comparison of a sweep's cells: mean ± standard error over seeds, and paired differences from the baseline.

Runs of one seed see the same problems in the same order, so differences are taken seed by seed. p is that of Student's
paired t-test, two-sided, with n − 1 degrees of freedom; it is adjusted by Holm's method over the cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from grposcope.core.estimate import Estimate
from grposcope.core.run import Run
from grposcope.lab.sweeps.plan import SweepPlan
from grposcope.maths.holm import holm

LATE = 0.8
"""Share of a run after which its reward counts."""


@dataclass(frozen=True)
class CellResult:
    """One cell. values: by seed, of the runs that finished. difference: from the baseline over common seeds, None for
    the baseline itself. p, adjusted: of no difference, before and after Holm's method; NaN with fewer than two seeds.
    """

    cell: str
    values: Mapping[int, float]
    mean: Estimate
    difference: Estimate | None = None
    p: float = math.nan
    adjusted: float = math.nan


@dataclass(frozen=True)
class SweepTable:
    """All cells in the order of the plan, what they are compared by, and with which."""

    metric: str
    baseline: str
    cells: tuple[CellResult, ...]


def of_runs(plan: SweepPlan, runs: Mapping[tuple[str, int], Run]) -> SweepTable:
    """The table of the finished runs, by cell and seed."""
    values = {cell.name: {seed: _outcome(runs[cell.name, seed], plan.metric) for seed in plan.seeds
                          if (cell.name, seed) in runs} for cell in plan.cells}  # fmt: skip
    return _compared(values, plan.baseline, plan.metric)


def _compared(values: Mapping[str, Mapping[int, float]], baseline: str, metric: str) -> SweepTable:
    """The table of values by cell and seed; values that are not finite are left out."""
    finite = {cell: {s: v for s, v in by_seed.items() if math.isfinite(v)} for cell, by_seed in values.items()}
    rows = []
    for cell, own in finite.items():
        row = CellResult(cell, own, Estimate.mean(list(own.values())))
        if cell != baseline:
            common = [seed for seed in own if seed in finite[baseline]]
            difference = Estimate.mean([own[seed] - finite[baseline][seed] for seed in common])
            row = replace(row, difference=difference, p=_paired_p(difference))
        rows.append(row)
    adjusted = [replace(row, adjusted=p) for row, p in zip(rows, holm([row.p for row in rows]), strict=True)]
    return SweepTable(metric, baseline, tuple(adjusted))


def _paired_p(difference: Estimate) -> float:
    """Two-sided p of Student's t-test that a mean of n differences is 0; NaN for fewer than two.

    Differences that are all the same have no noise to be judged by: 1 where they are 0, else 0.
    """
    if difference.n < 2:
        return math.nan
    if difference.se == 0:
        return 1.0 if difference.value == 0 else 0.0
    return float(2 * stdtr(difference.n - 1, -abs(difference.value / difference.se)))


def _outcome(run: Run, metric: str) -> float:
    """What a run is compared by; NaN where it was not recorded."""
    if metric == "pass@1":
        heldout = run.evaluations.of("pass@1")
        return float(heldout.value[-1]) if len(heldout) else math.nan
    reward = run.table.get("reward", np.empty(0))
    late = reward[int(LATE * len(reward)) :]
    late = late[np.isfinite(late)]
    return float(late.mean()) if len(late) else math.nan
