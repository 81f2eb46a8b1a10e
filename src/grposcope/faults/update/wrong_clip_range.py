"""The clip of the ratio in force is not the stated one: another ε, exchanged sides, or both sides for either sign.

Asked as
    Does the clip do what epsilon says?
What it is
    epsilon and epsilon_high that are not passed on, sides that are exchanged, a clip that is left out, or a ratio that
    is clamped without the min of the surrogate.
How it shows
    Which tokens of a later update have a derivative of 0 and which have not gives the two limits in force.
What it does to the gradient
    A tighter range teaches less from each further update; a wider one lets a batch be followed too far. Exchanged
    sides hold good rollouts back and push bad ones down further than was meant, so entropy falls faster.
What to do
    Compare the range that the loss is called with with the settings, the lower and the upper side by themselves.
What decides
    The derivatives and log-probabilities of a second update on one batch: train with verify_every.
Sources
    DAPO, two sides: https://arxiv.org/abs/2503.14476
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import gradient

FAULT = Fault(
    name="wrong clip range",
    rank=7.4,
    remedy="compare the range that the loss is called with with the settings, each side by itself",
    beside="warning",
    rollouts=(gradient.PROOF,),
)
