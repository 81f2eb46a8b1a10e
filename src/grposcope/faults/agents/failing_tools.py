"""Calls of tools fail, for reasons of the tool.

Asked as
    tools/failure_frequency rises and the reward falls
What it is
    The tool, its server, its quota or its sandbox fails, or takes longer than its time limit.
How it shows
    A quarter of the calls or more fail, and twice as many as at first, or half from the start. A jump is the tool
    or its server; a slow rise may be the policy, which drifts to calls that the tool refuses.
What it does to the gradient
    A rollout whose tool failed is paid for what it did not do, so that the policy learns not to call the tool.
What to do
    Read ten failed calls. Repair or replicate the tool, retry before the policy sees an error, and leave out
    rollouts whose tool failed; change nothing of the training.
What decides
    Ten failed calls with their answers, made again by hand.
Sources
    rLLM #710: https://github.com/rllm-org/rllm/issues/710
    UniRL #214
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.agents import FAILING_CALLS

FAULT = Fault(
    name="failing tools",
    rank=45,
    remedy="read ten failed calls; repair or replicate the tool, retry before the policy sees an error, and leave out "
    "rollouts whose tool failed",
    effect="rollouts are paid for what their tools did",
    beside="warning",
    log=FAILING_CALLS,
)
