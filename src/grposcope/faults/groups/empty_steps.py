"""Many steps have a gradient norm of 0.

What it is
    All groups of such a step have equal rewards, so that it costs rollouts and changes nothing; or what it trains on
    has no weight, where it comes at one interval or beside groups that differ.
How it shows
    The gradient norm is 0, or negligible beside its upper quartile, in a large share of late steps. They are
    counted.
What it does to the gradient
    It is 0 in these steps.
What to do
    Prompts that 20 to 80 % of rollouts solve, more prompts per step, or dynamic sampling (DAPO).
What decides
    The share of dead groups, logged or from the rollouts (grposcope plan RUN).
Sources
    theory: advantage degeneracy
    arXiv:2503.14476 (DAPO)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Grade, Sign, fact
from grposcope.core.text import apart_shares, number
from grposcope.maths.timeseries import level as levels
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs import run_outcome
from grposcope.signs.gradient_norms import live
from grposcope.signs.lost_gradient import is_lost
from grposcope.signs.quantities import SHORT, MetricSeries, Quantities

MANY = 0.4
"""Share of late steps without a gradient that is worth a word."""

MOST = 0.85
"""Share of late steps without a gradient that leaves nothing to learn from, whatever the outcome may be."""


_PERIODS = range(2, 13)
"""Rows from one empty step to the next that are looked for."""

_TIMES = 10
"""Empty steps at one interval, at least, for which no rewards come by chance."""

_OF_BATCHES = (
    "find what such a step trains on, for equal rewards do not make it empty: see that each part of a batch reaches "
    "the optimiser once (accumulation, steps per generation, mini-batches), that masks and filters leave tokens in it, "
    "and that the norm that is logged is that of an optimiser step"
)
"""What to do where steps are empty at one interval, or with unequal rewards."""


def _check(quantities: Quantities) -> Finding:
    """The share of late steps that have no gradient, above MANY."""
    norm = quantities.require("grad_norm", SHORT)
    empty = (~live(norm.values)).astype(float)
    first, last = (float(empty[levels.rows(len(empty), span)].mean()) for span in (EARLY, LATE))
    key, count = quantities.key(norm.name), int(empty.sum())
    evidence = (Sign(f"late steps without a gradient, last {1 - LATE[0]:.0%}", last, column=norm.name),)
    if last < MANY:
        return fact(False, f"{last:.0%} of late steps have no gradient to speak of", evidence)
    if is_lost(quantities):
        return fact(False, "no step has a gradient, and dead groups do not explain it", evidence)
    because = (
        f"{apart_shares(first, last)} of {norm.rows} have no gradient to speak of: "
        f"{count:,} of {len(empty):,} over the whole run"
    )
    apart = _without_dead_groups(quantities, norm, empty > 0)
    undecided = run_outcome.of_run(quantities.run).state == "undecided" and last < MOST
    grades: tuple[Grade, Grade] | None = (FAULT.beside, "warning") if undecided else None
    what = "is 0" if not norm.values[empty > 0].any() else "is near 0"
    return fact(True, because + apart, evidence, grades=grades, remedy=_OF_BATCHES if apart else "",
                brief=f"{key} {what} in {count} of {len(empty)} {norm.rows}")  # fmt: skip


def _without_dead_groups(quantities: Quantities, norm: MetricSeries, empty: NDArray[np.bool_]) -> str:
    """That the empty rows (n,) come at one interval, or have groups of unequal rewards, as a clause; else empty."""
    rows = np.flatnonzero(empty)
    every = next((k for k in _PERIODS if len(rows) >= _TIMES and (np.diff(rows) == k).all()), 0)
    if every and rows[0] < every and len(empty) - rows[-1] <= every:
        return f"; they come every {every} rows, which rewards do not do by chance"
    dead = quantities.column("dead_fraction")
    there = np.array([]) if dead is None else dead.values[np.isin(dead.steps, norm.steps[rows])]
    if dead is None or len(there) < len(rows) or not there.max() < 1:
        return ""
    return f"; {quantities.key(dead.name)} is {number(float(there.max()))} there at most, so that groups differ in them"


FAULT = Fault(
    name="empty steps",
    rank=160,
    remedy="use prompts that 20 to 80% of rollouts solve, draw more prompts per step, or filter dead "
    "groups (dynamic sampling, DAPO)",
    effect="these steps cost time and teach nothing",
    outgrown=True,
    log=LogTest(
        "empty steps",
        _check,
        needs=("grad_norm",),
        statistic="share of late steps whose gradient norm is 0 or negligible compared with the upper quartile",
        threshold=f"{MANY:g}",
    ),
)
