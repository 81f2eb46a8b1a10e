"""Longer, or shorter, texts are paid whatever they say.

What it is
    A reward for length, a grader that finds the answer by chance in long texts, or a limit that only short ones
    meet.
How it shows
    Inside the same groups length goes with the reward, lengths move that way, and a true score does not follow.
What it does to the gradient
    It moves the length itself: every token at the end is credited with the reward of the whole.
What to do
    Take length out of the reward, or cap what it adds; grade the final answer alone.
What decides
    The grader on right and wrong answers, each padded or cut to the same length.
Sources
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="length pays",
    rank=39.2,
    remedy="take length out of the reward or cap what it adds, and go back to the checkpoint before the onset",
    effect="the policy learns what is paid and not what is meant",
    beside="warning",
    gamed=True,
    rollouts=(texts.PROOF,),
)
