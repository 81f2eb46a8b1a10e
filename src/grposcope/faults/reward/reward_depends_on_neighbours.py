"""A rollout's reward depends on its place in the batch.

What it is
    A grader that keeps state, compares rollouts with each other, or mixes up the order of its answers.
How it shows
    The same texts in another order get other rewards.
What it does to the gradient
    Advantages are partly those of neighbours: noise, and a bias where places are not random.
What to do
    Let each reward depend on its own completion alone.
What decides
    One batch graded in two orders: grposcope verify FOLDER --reward MODULE:FUNCTION.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import rewards

FAULT = Fault(
    name="reward depends on neighbours",
    rank=6.4,
    remedy="make each reward depend only on its own completion",
    beside="warning",
    rollouts=(rewards.PROOF,),
)
