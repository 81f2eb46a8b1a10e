"""Logged rewards are not those that the reward function gives.

What it is
    Another version of the function, another text than the one that was written down, or a change of rewards in
    between.
How it shows
    Graded again, rewards differ, and no permutation explains it.
What it does to the gradient
    It follows rewards that nobody stated.
What to do
    Log the text as it was graded, and the reward as the function gave it.
What decides
    Rewards graded again: grposcope verify FOLDER --reward MODULE:FUNCTION.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import rewards

FAULT = Fault(
    name="wrong rewards",
    rank=6.6,
    remedy="log the text as it was graded, and find what changes rewards after the function",
    beside="warning",
    rollouts=(rewards.PROOF,),
)
