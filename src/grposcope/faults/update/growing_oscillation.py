"""The reward swings with one period, and the swings grow.

What it is
    The multipliers of the training dynamics lie outside the unit circle: rollouts are too old, or step and momentum
    too large, for the curvature.
How it shows
    As an oscillation, and the chance that the swings do not grow is below 0.01.
What it does to the gradient
    Each update is that of a policy which has moved on; part of every step is undone by the next.
What to do
    Draw new rollouts more often (fewer updates per batch), or lower the learning rate or the momentum.
What decides
    grposcope stability RUN: whether the refresh interval is near N*; then ten steps with half as many updates per
    batch.
Sources
    arXiv:2606.30789: multipliers outside the unit circle
    Mann & Lees 1996, for the test
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.checks.steps_on_a_batch import CHECK
from grposcope.signs.swings import TEST

FAULT = Fault(
    name="growing oscillation",
    rank=39.95,
    remedy="draw new rollouts more often (fewer updates per batch), or lower the learning rate or momentum",
    effect="the result depends on where in the swing you stop the run",
    instead="warning",
    log=TEST,
    settings=CHECK,
)
