"""The gradient is clipped at another norm than the stated one, or scaled between the clip and the optimiser.

What it is
    max_grad_norm that arrives as another value, near 0 for instance; a clip after an unscaling that was left out; a
    gradient that is divided once more behind the clip.
How it shows
    What Adam's second moments gained in a step is not the square of the logged norm, clipped as stated.
What it does to the gradient
    Adam divides a constant factor away until the gradient is as small as its ε; from there on nothing moves. Under SGD
    the step is smaller by the factor.
What to do
    Print the value that the clip is called with, and the norm before and after it.
What decides
    Adam's state of two steps in turn, and the logged norms: train with verify_every, then grposcope verify FOLDER.
Sources
    Adam: https://arxiv.org/abs/1412.6980
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import gradient

FAULT = Fault(
    name="clip norm not in force",
    rank=2.7,
    remedy="print the value that the clip is called with, and the norm before and after it",
    beside="warning",
    rollouts=(gradient.PROOF,),
)
