"""Rollouts are stopped by a limit on turns, not by their environment or by tokens.

What it is
    max_turns, max_tool_calling_iterations or the environment's own limit is below what a solution takes, or the
    policy does not come to an end.
How it shows
    A share of rollouts whose stop reason is the limit on turns; or nearly all rollouts with the most turns there
    are, which they did not take at first. A longer limit on tokens changes nothing.
What it does to the gradient
    Stopped rollouts are mostly paid 0, so that groups die, or taking turns is punished as such.
What to do
    Raise the limit on turns to twice what solved rollouts take. If solved ones take few, the policy loops: see
    looping. Do not mask rollouts by their truncation flag: it counts the limit on tokens.
What decides
    Turns of solved rollouts beside the limit.
Sources
    NeMo-RL #3970: https://github.com/NVIDIA-NeMo/RL/issues/3970
    TRL #4976: https://github.com/huggingface/trl/issues/4976
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.agents import TURN_LIMIT

FAULT = Fault(
    name="turn limit",
    rank=141,
    remedy="raise the limit on turns to twice what solved rollouts take; if these take few, read the stopped ones for "
    "repeated calls",
    effect="stopped rollouts are mostly paid 0",
    beside="warning",
    log=TURN_LIMIT,
)
