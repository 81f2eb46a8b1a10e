"""Siblings are not compared with each other.

What it is
    Groups that are cut between processes, micro-batches or steps before advantages are computed.
How it shows
    Advantages fit groups of a divisor of the size, or parts of a group lie in several steps.
What it does to the gradient
    Baselines come from fewer rollouts: they are noisier, and a rollout alone in its group has advantage 0.
What to do
    Gather rewards over processes, and keep the rollouts of a prompt together until advantages are computed.
What decides
    Groups, rewards and advantages of one batch: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import advantages, groups

FAULT = Fault(
    name="split groups",
    rank=3.6,
    remedy="keep the rollouts of a prompt in one batch until advantages are computed",
    beside="warning",
    rollouts=(groups.PROOF, advantages.PROOF),
)
