"""The policy makes calls that no tool can answer.

What it is
    Names of tools that do not exist, arguments that do not parse, actions that the environment does not take.
How it shows
    A quarter of the calls or more are wrong, and twice as many as at first, or half from the start, by a metric
    that counts them apart from failures of the tools.
What it does to the gradient
    Turns are spent without an answer; where a wrong call ends the rollout, only format is learned.
What to do
    Compare the prompt's template with the parser's; fine-tune on traces with calls; pay a small penalty for a call
    that does not parse. The tools need no repair.
What decides
    Ten wrong calls beside the declaration of the tools.
Sources
    verl #5375: https://github.com/verl-project/verl/issues/5375
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.agents import FAILING_CALLS

FAULT = Fault(
    name="malformed calls",
    rank=131,
    remedy="compare the template of the prompt with the parser of calls; fine-tune on traces with calls, or pay a "
    "small penalty for a call that does not parse",
    effect="turns are spent without an answer",
    beside="warning",
    log=FAILING_CALLS,
)
