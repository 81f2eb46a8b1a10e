"""Entropy explosion"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.entropy import TEST

FAULT = Fault(
    name="entropy explosion",
    rank=90,
    remedy="lower the learning rate or the entropy bonus; check completions for gibberish",
    source="theory: policy concentration; the ratios are chosen by this project",
    effect="answers vary less, so pass@k and exploration may suffer",
    beside="warning",
    log=TEST,
)
