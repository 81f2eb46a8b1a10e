"""The reference of the KL term is no fixed policy.

What it is
    A reference that shares its weights with the policy, or is updated with it though nothing says so; or that is taken
    from the checkpoint at each resume, so that the policy may drift as far again.
How it shows
    The reference's log-probabilities equal the policy's after the weights have moved, or are not those of the
    starting weights; the KL stays 0. At a resume the KL goes back to where it began, and the reward stays; or it falls
    at one interval and rises in between.
What it does to the gradient
    The KL term has no gradient, or holds the policy near its last weights instead of its first: nothing limits how
    far it goes.
What to do
    Keep a frozen copy of the starting weights; update it only where that is meant.
What decides
    The KL after some steps, or the reference's log-probabilities under the starting weights.
Sources
    NeMo-RL #3722: https://github.com/NVIDIA-NeMo/RL/pull/3722
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.lost_weights import TEST
from grposcope.signs.rollouts.claims import first_update, gradient

FAULT = Fault(
    name="reference moves along",
    rank=7.8,
    remedy="keep a frozen copy of the starting weights as the reference",
    beside="warning",
    log=TEST,
    rollouts=(gradient.PROOF, first_update.PROOF),
)
