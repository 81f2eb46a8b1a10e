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
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import first_update, resume

FAULT = Fault(
    name="learning rate off schedule",
    rank=8.4,
    remedy="step the scheduler once per optimiser step, and restore it with the checkpoint",
    beside="warning",
    rollouts=(first_update.PROOF, resume.PROOF),
)
