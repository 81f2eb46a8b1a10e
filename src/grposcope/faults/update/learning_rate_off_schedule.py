"""The learning rate is not the one of the stated schedule.

What it is
    A scheduler that steps with micro-batches, begins anew after a restart, or has another length or warm-up.
How it shows
    Logged rates differ from the schedule, or jump at a restart; or the weights before and after a step show another
    rate than the scheduler had for it, as where groups of parameters have rates of their own.
What it does to the gradient
    Steps are larger or smaller than stated; a rate that begins anew comes with its warm-up and its peak.
What to do
    Step the scheduler once for each optimiser step, and restore it with the checkpoint.
What decides
    The logged learning rate beside the schedule, and that which steps took: grposcope verify FOLDER, verify_every.
Sources
    NeMo-RL #3171, neither optimiser nor scheduler restored: https://github.com/NVIDIA-NeMo/RL/pull/3171
    method of this project"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, fact
from grposcope.maths.timeseries.noise import Array
from grposcope.signs.quantities import LEAST, SHORT, Quantities
from grposcope.signs.rollouts.claims import first_update, resume

WARM = 3
"""Rows of a warm-up, at least, that have to come again."""

FELL = 0.5
"""Rate of the row over that of the row before it, at most, where a schedule begins anew."""

ALIKE = 1e-5
"""Relative difference of two rates that are the same but for rounding."""

REMEDY = (
    "restore the scheduler with the checkpoint, and see that the optimiser's moments are restored too, which are saved "
    "beside it: without them each of the next steps is about the learning rate in every coordinate"
)


def _check(quantities: Quantities) -> Finding:
    """Rates of the first rows, a warm-up, that come again from a later row on."""
    rate = quantities.require("lr", LEAST)
    values = rate.values
    warm = int(np.argmin(np.append(np.diff(values) > ALIKE * values.max(), False))) + 1
    rows = [row for row in range(SHORT, len(values) - WARM) if _again(values, row, warm)] if warm >= WARM else []
    if not rows:
        return fact(False, "no warm-up of the learning rate comes again")
    row, step = rows[0], int(rate.steps[rows[0]])
    again = f", and again at {len(rows) - 1} later step{'s' * (len(rows) > 2)}" if len(rows) > 1 else ""
    because = (
        f"{quantities.key(rate.name)} falls from {values[row - 1]:.3g} to {values[row]:.3g} at step {step:,}{again} "
        "and begins the warm-up of the first rows anew: the scheduler was not restored, unless another run begins there"
    )
    evidence = (
        Sign(f"{rate.name}, row before", float(values[row - 1]), column=rate.name),
        Sign(f"{rate.name}, at step {step:,}", float(values[row]), column=rate.name),
    )
    return fact(True, because, evidence, step, remedy=REMEDY,
                brief=f"the learning rate warms up anew at step {step:,}")  # fmt: skip


def _again(values: Array, row: int, warm: int) -> bool:
    """Whether the rates (n,) from a row on are those of the first rows, as many as the warm-up has or are left."""
    count = min(warm, len(values) - row)
    same = np.abs(values[row : row + count] - values[:count]) <= ALIKE * np.abs(values[:count]).max()
    return bool(count >= WARM and values[row] <= FELL * values[row - 1] and same.all())


FAULT = Fault(
    name="learning rate off schedule",
    rank=8.4,
    remedy="step the scheduler once per optimiser step, and restore it with the checkpoint",
    beside="warning",
    instead="warning",
    log=LogTest(
        "learning rate off schedule",
        _check,
        needs=("lr",),
        statistic="learning rates from each row on beside those of the first rows",
        threshold=f"a warm-up of {WARM} rows or more that comes again from a row with {FELL:g} × the rate before or "
        "less",
        where_logged=True,
    ),
    rollouts=(first_update.PROOF, resume.PROOF),
)
