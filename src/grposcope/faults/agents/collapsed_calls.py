"""The policy stops calling tools, or answers in one turn.

Asked as
    The agent stops calling its tools
    num_turns goes to 1
What it is
    A call costs tokens, a turn or a penalty, and pays only with what comes after it. Where calls of the first
    policy rarely pay, because they are malformed, the tool fails or the turn after them is not trained well, the
    gradient takes them away before they are learned.
How it shows
    Calls per rollout, or turns beyond the first, fall below a quarter of what they were.
What it does to the gradient
    Rollouts without calls are all alike: what a call would have paid is never seen again, so that training cannot
    find the way back by itself.
What to do
    Go back to before the fall. Fine-tune on traces with calls first, until calls pay; give calls no cost of their
    own at first; check that the loss does not divide by the tokens or turns of each rollout.
What decides
    E[reward | turns] among the rollouts before the fall: whether rollouts with calls were paid more.
Sources
    agent-lightning #489: https://github.com/microsoft/agent-lightning/issues/489
    verl #5375: https://github.com/verl-project/verl/issues/5375
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.agents import COLLAPSE

FAULT = Fault(
    name="collapsed calls",
    rank=130,
    remedy="go back to before the fall, and fine-tune on traces with calls first; check whether rollouts with calls "
    "were paid more, and whether the loss divides by the tokens or turns of each rollout",
    effect="what a call would have paid is no longer seen",
    beside="warning",
    log=COLLAPSE,
)
