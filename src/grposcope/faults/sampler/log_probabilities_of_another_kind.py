"""The sampler's log-probabilities are no natural logarithms of probabilities.

What it is
    Logarithms to base 2 or 10, probabilities themselves, or values with the opposite sign, as a cross entropy has them.
How it shows
    Times one constant, or after a logarithm, they equal the trainer's of the same tokens.
What it does to the gradient
    Importance weights are powers of what they should be, so that a correction cuts off or drowns most rollouts.
What to do
    Convert them where the sampler's answer is read: natural logarithms, below 0.
What decides
    The sampler's and the trainer's log-probabilities of one rollout, side by side: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import first_update

FAULT = Fault(
    name="log-probabilities of another kind",
    rank=213.5,
    remedy="convert them where the sampler's answer is read: natural logarithms, below 0",
    beside="warning",
    rollouts=(first_update.PROOF,),
)
