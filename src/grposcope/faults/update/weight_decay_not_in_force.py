"""The weights shrink by another share in each step than the settings state.

What it is
    A decay that the optimiser was not given, is given to other parameters, or has by default.
How it shows
    A step of AdamW changes weights by −η (u + λ w): its own state gives u, and a regression on u and w gives λ.
What it does to the gradient
    Nothing, but weights are drawn to 0, or are not although they should be.
What to do
    Look at the groups of parameters that the optimiser has, and at the decay of each.
What decides
    The weights before and after one step: verify_every of GRPOscopeTrainer measures it.
Sources
    Loshchilov and Hutter: https://arxiv.org/abs/1711.05101"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import first_update

FAULT = Fault(
    name="weight decay not in force",
    rank=8.45,
    remedy="look at the decay of each group of parameters that the optimiser has",
    beside="warning",
    rollouts=(first_update.PROOF,),
)
