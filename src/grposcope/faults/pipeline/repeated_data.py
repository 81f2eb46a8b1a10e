"""Prompts come again within an epoch.

Asked as
    Does resuming from a checkpoint train on the same prompts again?
What it is
    The position in the data is not restored after a restart, or several processes draw the same prompts.
How it shows
    Prompts of an epoch are in two batches of it, in order; after a restart, those of the first steps come again, and
    the epoch that is logged goes back while steps go on.
What it does to the gradient
    Some prompts are trained on twice and others never: the policy overfits the beginning of the data.
What to do
    Restore the state of the data loader with the checkpoint (ignore_data_skip=False in TRL).
What decides
    The prompts around the restart: grposcope verify FOLDER.
Sources
    verl #389, stateful data loader: https://github.com/verl-project/verl/pull/389
    ms-swift #10050, accelerate #4071, an epoch in the order of the first: https://github.com/modelscope/ms-swift/issues/10050
    EasyR1 #57: https://github.com/hiyouga/EasyR1/issues/57"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.text import apart, number
from grposcope.signs.jumps import WINDOW, jump
from grposcope.signs.quantities import LEAST, SHORT, Quantities
from grposcope.signs.rollouts.claims import resume

_CLEAR, _NEAR = 2.0, 2
"""Spreads of a rise of the reward where the data begin again, and steps on either side in which it is looked for."""

_MOST = 3
"""Times that the data begin again, at most: more are data sets in turn."""

_REMEDY = (
    "restore the position in the data with the checkpoint (its data loader's state; ignore_data_skip=False in TRL), "
    "unless another data set begins there; choose checkpoints by a held-out score, since these prompts were trained on"
)


def _check(quantities: Quantities) -> Finding:
    """That the epoch goes back at a step, and that the reward rises there if it does."""
    epoch = quantities.require("epoch", LEAST)
    rows = np.flatnonzero(np.diff(epoch.values) < 0) + 1
    rows = rows[rows >= SHORT]
    if not 0 < len(rows) <= _MOST:
        return fact(False, "the epoch does not go back, or so often that several data sets are counted in turn")
    row, step = int(rows[0]), int(epoch.steps[rows[0]])
    first, last = (number(float(value)) for value in epoch.values[row - 1 : row + 1])
    again = f", and back again at {len(rows) - 1} later steps" if len(rows) > 1 else ""
    because = (
        f"{quantities.key(epoch.name)} goes back from {first} to {last} at step {step:,}{again}: the data begin again "
        "there, so that prompts come that were trained on, or those of another data set" + _rise(quantities, step)
    )
    evidence = (Sign("epoch of the row before", float(epoch.values[row - 1]), column=epoch.name),)
    return fact(True, because, evidence, step, remedy=_REMEDY, grades=("note", "warning"),
                brief=f"epoch {first} → {last} at step {step:,}", explains=("wrong rewards",))  # fmt: skip


def _rise(quantities: Quantities, step: int) -> str:
    """From which level to which the reward rises at once about a step, as a clause; empty where it does not."""
    reward = quantities.get("reward", LEAST)
    row = None if reward is None else jump(reward.values, 1, _CLEAR)
    if reward is None or row is None or abs(reward.steps[row] - step) > _NEAR:
        return ""
    levels = [float(np.median(reward.values[rows])) for rows in (slice(row - WINDOW, row), slice(row, row + WINDOW))]
    return "; the reward rises from {} to {} there".format(*apart(*levels))


FAULT = Fault(
    name="repeated data",
    rank=8.6,
    remedy="restore the position in the data with the checkpoint",
    beside="warning",
    log=LogTest(
        "repeated data",
        _check,
        needs=("epoch",),
        statistic="the logged epoch of each row less that of the row before",
        threshold="below 0",
        where_logged=True,
    ),
    rollouts=(resume.PROOF,),
)
