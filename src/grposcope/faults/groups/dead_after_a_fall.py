"""The reward drops, and from then on nearly all groups have equal rewards.

What it is
    The policy collapsed to answers that earn nothing. The dead groups are not what began it.
How it shows
    As starved, after the reward has plainly fallen.
What it does to the gradient
    There is hardly any, so that training cannot return.
What to do
    Go back to a checkpoint from before the reward fell, and find what made it fall.
What decides
    What changed in the steps before the fall: KL, gradient norm, length, the sampler's weights.
Sources
    fla #1076, a loss negated twice: https://github.com/fla-org/flash-linear-attention/pull/1076
    theory: advantage degeneracy, P(dead) = p^G + (1 − p)^G
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.dead_groups import STARVED

FAULT = Fault(
    name="dead after a fall",
    rank=110,
    remedy=(
        "go back to the checkpoint before the onset, and find what made the reward fall: most groups have equal "
        "rewards since, and no gradient"
    ),
    beside="warning",
    implies=("empty steps", "reward decline"),
    log=STARVED,
)
