"""Single steps have a gradient norm many times the usual one.

What it is
    A few batches dominate the run: outlier rewards, near-zero spreads of a group, impossible tokens.
How it shows
    The second largest norm is beyond what heavy tails explain, and several times the running median of steps with a
    gradient.
What it does to the gradient
    A few updates outweigh all others.
What to do
    Clip the gradient (max_grad_norm), lower the learning rate, and look at the batches of these steps.
What decides
    The rewards and log-probabilities of the batch of the largest spike.
Sources
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import OWN_METHOD, Fault
from grposcope.signs.gradient_norms import TEST

FAULT = Fault(
    name="gradient spikes",
    rank=180,
    remedy="clip the gradient (max_grad_norm), lower the learning rate, and look at the batches of these steps",
    source=OWN_METHOD,
    effect="a few updates outweigh all others",
    instead="warning",
    log=TEST,
)
