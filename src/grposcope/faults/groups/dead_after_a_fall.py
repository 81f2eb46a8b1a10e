"""Dead after a fall"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.dead_groups import SOURCE, STARVED

FAULT = Fault(
    name="dead after a fall",
    rank=110,
    remedy=(
        "go back to a checkpoint before the reward fell: since then all rewards within a group are equal, so no "
        "gradient can restore it"
    ),
    source=SOURCE,
    beside="warning",
    log=STARVED,
)
