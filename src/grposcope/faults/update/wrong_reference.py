"""The KL to the reference is not 0 before the first update.

What it is
    A reference that is loaded from other weights, in another number format or with dropout: an adapter or a checkpoint
    that only one of the two has, as in the second stage of a training.
How it shows
    The log has a KL above 0.02 nats at step 1, which does not grow from 0.
What it does to the gradient
    The KL term pulls the policy to another model than the one it started from.
What to do
    Load reference and policy from the same weights, with dropout off.
What decides
    The KL of step 1.
Sources
    ms-swift #6910: https://github.com/modelscope/ms-swift/issues/6910
    TRL #3194, adapters of an earlier stage: https://github.com/huggingface/trl/issues/3194
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.first_kl import TEST
from grposcope.signs.rollouts.claims import first_update

FAULT = Fault(
    name="wrong reference",
    rank=8.0,
    remedy="load reference and policy from the same weights, with dropout off: with adapters the reference is the "
    "model without them, so merge those of an earlier stage into it before training new ones; nothing, where the "
    "reference is another model on purpose",
    beside="warning",
    log=TEST,
    rollouts=(first_update.PROOF,),
)
