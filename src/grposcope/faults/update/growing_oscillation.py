"""Growing oscillation"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.update.steps_on_a_batch import CHECK
from grposcope.signs.swings import TEST

FAULT = Fault(
    name="growing oscillation",
    rank=30,
    remedy="draw new rollouts more often (fewer updates per batch), or lower the learning rate or momentum",
    source="theory: multipliers near the unit circle, refresh interval near N*; the test is a method of this project "
    "(after Mann & Lees 1996)",
    effect="the result depends on where in the swing you stop the run",
    instead="warning",
    log=TEST,
    settings=CHECK,
)
