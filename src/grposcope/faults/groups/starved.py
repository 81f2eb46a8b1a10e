"""Starved"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.groups.expected_dead import CHECK
from grposcope.signs.dead_groups import SOURCE, STARVED

FAULT = Fault(
    name="starved",
    rank=100,
    remedy="use easier prompts, more rollouts per prompt or partial credit; check that the verifier accepts a "
    "right answer",
    source=SOURCE,
    beside="warning",
    log=STARVED,
    settings=CHECK,
)
