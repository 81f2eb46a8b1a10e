"""The weights that sample fall ever farther behind those that train.

What it is
    An asynchronous sampler that draws faster than the trainer consumes, and a bound on it that is not in force, as
    after a recovery that restores the version of the weights and not the count of rollouts.
How it shows
    Mismatch rises and falls with the logged staleness, which grew by half or more. Or the staleness alone is twice as
    large in the last quarter of the rows as in the second, and by two versions or more.
What it does to the gradient
    Rollouts are of older and older policies; beyond N* steps the update overshoots.
What to do
    Reduce the lag, or correct for it; find out what slows down the trainer.
What decides
    Mismatch against staleness, step by step.
Sources
    AReaL, prime-rl (staleness metrics)
    AReaL #1388, a bound that is lost at a restart: https://github.com/areal-project/AReaL/issues/1388"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.sampler_mismatch import TEST

FAULT = Fault(
    name="growing lag",
    rank=217,
    remedy="reduce the sampler's lag or correct for it; find out what slows down the trainer",
    beside="warning",
    log=TEST,
)
