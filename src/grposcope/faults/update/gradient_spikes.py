"""Single steps have a gradient norm many times the usual one.

Asked as
    grad_norm is above max_grad_norm. Does clipping not work?
What it is
    A few batches dominate the run: outlier rewards, near-zero spreads of a group, impossible tokens.
How it shows
    The second largest norm is beyond what heavy tails explain, and several times the running median of steps with a
    gradient.
What it does to the gradient
    Norms are logged before clipping. Where max_grad_norm is in force, a step of a larger norm is no longer than others,
    only its direction is that of few rollouts; without it a few updates outweigh all others.
What to do
    See that the gradient is clipped (max_grad_norm), and look at the batches of these steps. A logged norm above
    max_grad_norm is no sign that clipping fails.
What decides
    The rewards and log-probabilities of the batch of the largest spike.
Sources
    ms-swift #3713: https://github.com/modelscope/ms-swift/issues/3713
    TRL #3312: https://github.com/huggingface/trl/issues/3312
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.gradient_norms import TEST

FAULT = Fault(
    name="gradient spikes",
    rank=180,
    remedy="see that the gradient is clipped (max_grad_norm), and look at the batches of these steps",
    effect="norms are logged before clipping: with max_grad_norm in force these steps are no longer than others",
    instead="warning",
    log=TEST,
)
