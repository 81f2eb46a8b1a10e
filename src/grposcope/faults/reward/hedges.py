"""Several different answers are given, and one of them suffices.

What it is
    The grader looks for the right answer anywhere, so giving many is safer than giving one.
How it shows
    Texts with several different marked answers are paid more inside the same groups, and become more.
What it does to the gradient
    It raises the probability of listing answers rather than of choosing one.
What to do
    Grade the last answer alone, or refuse texts with more than one.
What decides
    The grader on a wrong answer followed by a right one, and on a right one followed by a wrong one.
Sources
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="hedges",
    rank=39.5,
    remedy="grade the last answer alone or refuse several, and go back to the checkpoint before the onset",
    effect="the policy learns what is paid and not what is meant",
    beside="warning",
    gamed=True,
    rollouts=(texts.PROOF,),
)
