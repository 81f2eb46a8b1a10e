"""The gradient norm grows by a multiple and stays there.

What it is
    Training diverges: too large a learning rate, or ratios far from 1.
How it shows
    Late gradient norm above five times the early one, in steps that have a gradient.
What it does to the gradient
    Updates are set by the clip of the norm, no longer by the rewards.
What to do
    Clip the gradient (max_grad_norm), lower the learning rate, and look at the batches of these steps.
What decides
    Whether the norm is logged before clipping, and whether KL and ratios grow with it.
Sources
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.gradient_norms import TEST

FAULT = Fault(
    name="gradient explosion",
    rank=170,
    remedy="clip the gradient (max_grad_norm), lower the learning rate, and look at the batches of these steps",
    effect="a few updates outweigh all others",
    beside="warning",
    instead="failing",
    log=TEST,
)
