"""Turns are compared with the mean of those rollouts alone that still go on.

What it is
    Rewards or returns of a turn are centred over the rollouts that take it; those that have ended are left out.
How it shows
    The advantages of turns are a multiple of what this rule gives, and not of what it gives with 0 for absent turns.
What it does to the gradient
    A rollout that ends leaves the comparison, so that ending is paid by what the others lose later: in toys the
    expected update had the wrong sign for “stop now” in one of five. Where one rollout is alone, its turn gets nothing.
What to do
    Count absent turns as 0 for all G rollouts of the group.
What decides
    Turn rewards and advantages of one group: grposcope verify FOLDER.
Sources
    verl #7244: https://github.com/verl-project/verl/issues/7244
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import trajectory_weights

FAULT = Fault(
    name="absent turns",
    rank=5.2,
    remedy="count absent turns as 0 for all rollouts of the group",
    effect="ending a rollout is paid or punished by who goes on",
    beside="warning",
    rollouts=(trajectory_weights.PROOF,),
)
