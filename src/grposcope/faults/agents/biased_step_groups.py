"""Turns that began in one state are compared with a mean that they are part of, or by the deviation of that state.

What it is
    GiGPO adds to the advantage of a rollout that of each step among the steps of the group with the same anchor state.
    The step itself is in the mean, and the deviation of a state divides.
How it shows
    The advantages of turns are sums of an advantage of the rollout and of such step groups.
What it does to the gradient
    A step counts (n − 1)/n of what it should where its state was reached n times, and nothing where that was once; in
    toys the error is .12 to .55 of the gradient. Divided by deviations, states in which rollouts differ little count as
    much as others. That histories behind equal states differ does no harm.
What to do
    Compare a step with those of other rollouts alone; where no other reached its state, with the mean return of the
    others from that turn on. Divide by no deviation of a state.
What decides
    Turn rewards, anchors and advantages of one group: grposcope verify FOLDER.
Sources
    GiGPO: https://arxiv.org/abs/2505.10978
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import trajectory_weights

FAULT = Fault(
    name="biased step groups",
    rank=5.3,
    remedy="compare a step with the steps of other rollouts in its state alone, and divide by no deviation of a state",
    effect="a step is compared with itself",
    beside="warning",
    rollouts=(trajectory_weights.PROOF,),
)
