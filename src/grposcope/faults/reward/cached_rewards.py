"""Rewards are kept by completion, and given again for other prompts.

What it is
    A cache of a slow grader whose key is the text of the completion alone. Short answers, such as a number or a letter,
    come for many prompts.
How it shows
    A text that was graded under one prompt has that reward under every other. Grading in another order moves them.
What it does to the gradient
    Right answers count as wrong, and wrong ones as right, by which prompt came first.
What to do
    Put the prompt, or what the grader compares with, into the key of the cache.
What decides
    The grader asked for one text under two prompts, in both orders: grposcope verify FOLDER --reward MODULE:FUNCTION.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import rewards

FAULT = Fault(
    name="cached rewards",
    rank=1.45,
    remedy="put the prompt, or what the grader compares with, into the key of the cache",
    rollouts=(rewards.PROOF,),
)
