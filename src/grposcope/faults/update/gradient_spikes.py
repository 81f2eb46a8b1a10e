"""Gradient spikes"""

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
