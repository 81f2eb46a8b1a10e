"""Advantages or the loss are the stated ones times a number.

What it is
    A factor that is applied twice or left out: a learning-rate multiplier, a world size, a scale of rewards.
How it shows
    One number multiplies all advantages of a batch, or all derivatives of its loss.
What it does to the gradient
    Every step is scaled by it. Under Adam a constant factor hardly matters but for ε, weight decay and the clip of
    the norm; under SGD it is a factor of the learning rate.
What to do
    Find where advantages, rewards or loss are multiplied.
What decides
    The derivatives of the loss of one batch: train with verify_every, or write loss_weights.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import advantages, gradient

FAULT = Fault(
    name="scaled by a factor",
    rank=2.6,
    remedy="find where advantages, rewards or the loss are multiplied",
    instead="warning",
    rollouts=(advantages.PROOF, gradient.PROOF),
)
