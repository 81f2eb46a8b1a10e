"""Saturated"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.groups.expected_dead import CHECK
from grposcope.signs.dead_groups import SATURATED, SOURCE

FAULT = Fault(
    name="saturated",
    rank=70,
    remedy="stop, train on harder prompts, or filter out solved ones (dynamic sampling, DAPO): these "
    "prompts are solved",
    source=SOURCE,
    effect="further steps on these prompts teach nothing",
    log=SATURATED,
    settings=CHECK,
)
