"""The reward swings with one period, and the swings do not die out.

Asked as
    The reward oscillates
What it is
    Updates overshoot: rollouts are reused too long for the learning rate and the momentum, so that the multipliers
    of the training dynamics lie near the unit circle.
How it shows
    A peak in the spectrum of the reward that slow random drift does not explain, with at least a fifth of the
    detrended variance.
What it does to the gradient
    Each update is that of a policy which has moved on; part of every step is undone by the next.
What to do
    Draw new rollouts more often (fewer updates per batch), or lower the learning rate or the momentum.
What decides
    grposcope stability RUN: whether the refresh interval is near N*; then ten steps with half as many updates per
    batch.
Sources
    arXiv:2606.30789: multipliers near the unit circle
    Mann & Lees 1996, for the test
    TRL #2884: https://github.com/huggingface/trl/issues/2884
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.checks.steps_on_a_batch import CHECK
from grposcope.signs.swings import TEST

FAULT = Fault(
    name="oscillation",
    rank=130,
    remedy="draw new rollouts more often (fewer updates per batch), or lower the learning rate or momentum",
    effect="the result depends on where in the swing you stop the run",
    instead="warning",
    log=TEST,
    settings=CHECK,
)
