"""The KL to the reference is not 0 before the first update.

What it is
    A reference that is loaded from other weights, in another number format or with dropout.
How it shows
    The log has a KL above 0.02 nats at step 1.
What it does to the gradient
    The KL term pulls the policy to another model than the one it started from.
What to do
    Load reference and policy from the same weights, with dropout off.
What decides
    The KL of step 1.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import first_update

FAULT = Fault(
    name="wrong reference",
    rank=8.0,
    remedy="load reference and policy from the same weights, with dropout off",
    beside="warning",
    rollouts=(first_update.PROOF,),
)
