"""Advantages that are the rewards themselves: nothing is subtracted.

Asked as
    critic/advantages/max equals critic/rewards/max in every step.
What it is
    Groups of one rollout, whose mean verl sets to 0, or an estimator without a baseline.
How it shows
    Largest and least advantage equal largest and least reward in every row.
What it does to the gradient
    It is REINFORCE without a baseline: unbiased, with a variance that grows with the square of the mean reward.
What to do
    Draw 4 rollouts of a prompt or more, and choose an estimator that compares them.
What decides
    rollout.n and adv_estimator in the settings that the trainer prints at its start.
Sources
    verl 0.9.1, core_algos: https://github.com/verl-project/verl
    method of this project"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.maths.timeseries.noise import Array
from grposcope.signs import run_outcome
from grposcope.signs.quantities import Quantities

PAIRS = (("advantage_max", "reward_max"), ("advantage_min", "reward_min"))
"""Columns of the advantage and of the reward that are compared."""

ROWS = 5
"""Rows with all four, from which on equality is no coincidence."""


def _check(quantities: Quantities) -> Finding:
    """Whether largest and least advantage equal largest and least reward on every row."""
    run = quantities.run
    missing = [name for pair in PAIRS for name in pair if name not in run.table]
    if missing:
        return cannot_tell(f"{missing[0]} is not logged")
    count = _equal_rows(run.table)
    if not count:
        return fact(False, "advantages are not the rewards")
    because = (
        f"advantages equal rewards on all {count} rows: groups have one rollout each, or no baseline is subtracted"
    )
    return fact(True, because, (Sign("rows in which they are equal", float(count), column="advantage_max"),),
                brief="advantages equal rewards: no baseline is subtracted",
                grades=run_outcome.although_it_learned(run))  # fmt: skip


def _equal_rows(table: Mapping[str, Array]) -> int:
    """The rows that have all four columns where they are equal on each and say something; else 0."""
    pairs = [(table[advantage], table[reward]) for advantage, reward in PAIRS]
    rows = np.all([np.isfinite(a) & np.isfinite(b) for a, b in pairs], axis=0)
    if rows.sum() < ROWS or not any(np.ptp(b[rows]) > 0 or b[rows].any() for _, b in pairs):
        return 0
    same = all(bool(np.allclose(a[rows], b[rows], rtol=1e-4, atol=1e-6)) for a, b in pairs)
    return int(rows.sum()) if same else 0


FAULT = Fault(
    name="no baseline",
    rank=2.2,
    remedy="set rollout.n (the group size) to 4 or more and adv_estimator to grpo",
    beside="warning",
    log=LogTest(
        "no baseline",
        _check,
        needs=(),
        where_logged=True,
        statistic="largest and least advantage less largest and least reward of each row",
        threshold="0 on all rows, of at least 5, a fact",
    ),
)
