"""Entropy collapse"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.entropy import TEST

FAULT = Fault(
    name="entropy collapse",
    rank=80,
    remedy="raise the upper clip (clip-higher, DAPO), add an entropy bonus or KL, or lower the learning rate",
    source="theory: policy concentration; the ratios are chosen by this project",
    effect="answers vary less, so pass@k and exploration may suffer",
    log=TEST,
)
