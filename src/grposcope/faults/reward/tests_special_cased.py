"""Code returns the expected outputs of its tests instead of solving the problem.

What it is
    Tests are visible or few, so literals suffice; or the program ends, or equals everything, before they are run.
How it shows
    Texts that compare their input with literals and return literals, or leave the tests, are paid more inside the
    same groups, and become more.
What it does to the gradient
    It raises the probability of the shortcut, and every problem solved that way teaches nothing about others.
What to do
    Test on hidden inputs in a process of its own, and refuse code that ends or replaces the tests.
What decides
    The same code on further inputs that no prompt shows.
Sources
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="tests special-cased",
    rank=39.6,
    remedy="test on hidden inputs in a process of its own, and go back to the checkpoint before the onset",
    effect="the policy learns what is paid and not what is meant",
    beside="warning",
    gamed=True,
    rollouts=(texts.PROOF,),
)
