"""The comparison of a sweep's cells: mean ± standard error over seeds, and paired differences from the baseline.

Runs of one seed see the same problems in the same order, so differences are taken seed by seed. p is that of Student's
paired t-test, two-sided, with n − 1 degrees of freedom; it is adjusted by Holm's method over the cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import stdtr

from grposcope.diagnosis.diagnose import holm
from grposcope.formatting import number, table
from grposcope.records import Estimate
from grposcope.runs.run import Run
from grposcope.sweeps.plan import SweepPlan

LEVEL = 0.05
"""Adjusted p-value below which a cell is said to differ from the baseline."""

LATE = 0.8
"""Share of a run after which its reward counts."""

TITLES = {"pass@1": "held-out pass@1 at the end", "reward": "mean reward of the last fifth"}


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
    sentence: str

    def document(self) -> dict[str, Any]:
        """The table as JSON."""
        return {"metric": self.metric, "baseline": self.baseline, "sentence": self.sentence,
                "cells": [vars(cell) for cell in self.cells]}  # fmt: skip


def of_runs(plan: SweepPlan, runs: Mapping[tuple[str, int], Run]) -> SweepTable:
    """The table of the finished runs, by cell and seed."""
    values = {cell.name: {seed: outcome(runs[cell.name, seed], plan.metric) for seed in plan.seeds
                          if (cell.name, seed) in runs} for cell in plan.cells}  # fmt: skip
    return compared(values, plan.baseline, plan.metric)


def compared(values: Mapping[str, Mapping[int, float]], baseline: str, metric: str) -> SweepTable:
    """The table of values by cell and seed; values that are not finite are left out."""
    known = {cell: {s: v for s, v in by_seed.items() if math.isfinite(v)} for cell, by_seed in values.items()}
    rows = []
    for cell, own in known.items():
        row = CellResult(cell, own, Estimate.mean(list(own.values())))
        if cell != baseline:
            common = [seed for seed in own if seed in known[baseline]]
            difference = Estimate.mean([own[seed] - known[baseline][seed] for seed in common])
            row = replace(row, difference=difference, p=paired_p(difference))
        rows.append(row)
    adjusted = [replace(row, adjusted=p) for row, p in zip(rows, holm([row.p for row in rows]), strict=True)]
    return SweepTable(metric, baseline, tuple(adjusted), _sentence(adjusted, baseline))


def paired_p(difference: Estimate) -> float:
    """Two-sided p of Student's t-test that a mean of n differences is 0; NaN for fewer than two.

    Differences that are all the same have no noise to be judged by: 1 where they are 0, else 0.
    """
    if difference.n < 2:
        return math.nan
    if difference.se == 0:
        return 1.0 if difference.value == 0 else 0.0
    return float(2 * stdtr(difference.n - 1, -abs(difference.value / difference.se)))


def outcome(run: Run, metric: str) -> float:
    """What a run is compared by; NaN where it was not recorded."""
    if metric == "pass@1":
        heldout = run.evaluations.of("pass@1")
        return float(heldout.value[-1]) if len(heldout) else math.nan
    reward = run.table.get("reward", np.empty(0))
    late = reward[int(LATE * len(reward)) :]
    late = late[np.isfinite(late)]
    return float(late.mean()) if len(late) else math.nan


def text(result: SweepTable) -> str:
    """The table for a terminal."""
    rows = [("cell", "seeds", TITLES[result.metric], "difference", "adjusted p"), *map(cells_of, result.cells)]
    return f"{table(rows)}\n\n{result.sentence}"


def cells_of(row: CellResult) -> tuple[str, str, str, str, str]:
    """A row as text: name, seeds, mean ± standard error, difference, adjusted p."""
    difference = "baseline" if row.difference is None else _estimate(row.difference, "+")
    p = "" if math.isnan(row.adjusted) else f"{row.adjusted:.2g}"
    return row.cell, str(row.mean.n), _estimate(row.mean), difference, p


def _estimate(estimate: Estimate, sign: str = "") -> str:
    if not math.isfinite(estimate.value):
        return "no run"
    error = f" ± {estimate.se:.2g}" if math.isfinite(estimate.se) else ""
    return f"{estimate.value:{sign}.3g}{error}"


def _sentence(rows: Sequence[CellResult], baseline: str) -> str:
    """The conclusion."""
    tested = [row for row in rows if not math.isnan(row.adjusted)]
    if not tested:
        return f"Nothing can be told: a difference from {baseline} needs two seeds that finished in both cells."
    beyond = [row for row in tested if row.adjusted < LEVEL and row.difference is not None]
    if not beyond:
        return (
            f"No cell differs from {baseline} by more than seeds do (least adjusted p = "
            f"{number(min(row.adjusted for row in tested))}, {len(tested)} compared)."
        )
    told = [f"{row.cell} by {_estimate(row.difference, '+')} (adjusted p = {row.adjusted:.2g})" for row in beyond
            if row.difference is not None]  # fmt: skip
    return f"Beyond the noise of seeds, these differ from {baseline}: {'; '.join(told)}."
