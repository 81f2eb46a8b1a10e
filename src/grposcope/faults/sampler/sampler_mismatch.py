"""Sampler mismatch"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.sampler_mismatch import TEST

FAULT = Fault(
    name="sampler mismatch",
    rank=220,
    remedy="compare the log-probabilities of sampler and trainer on one batch",
    source="method of this project; limits of verl, slime and NeMo-RL",
    beside="warning",
    log=TEST,
)
