"""Rollouts that are left out of the loss are in the baseline of their siblings.

What it is
    A mask that rejects whole rollouts (of another policy than the trainer's, of a failed environment) is made before
    advantages are, and these still use the rewards of what was rejected.
How it shows
    Rollouts without a trained token, and advantages of their siblings that are those of a group with them.
What it does to the gradient
    The baseline is that of other rollouts than those trained on: siblings of what was rejected are moved up or down.
What to do
    Leave the rewards of rejected rollouts out of mean and deviation, or draw them again. Completions that were cut and
    are masked for that are another matter: their low reward is what their siblings are compared with.
What decides
    Advantages of one such group worked out with and without its rejected rollouts: grposcope verify FOLDER.
Sources
    verl #6452: https://github.com/verl-project/verl/pull/6452
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import advantages

FAULT = Fault(
    name="untrained rollouts in the baseline",
    rank=3.8,
    remedy="leave the rewards of rollouts without a trained token out of the mean and deviation of their groups (set "
    "them to NaN before advantages are computed), or draw such rollouts again",
    beside="warning",
    instead="warning",
    rollouts=(advantages.PROOF,),
)
