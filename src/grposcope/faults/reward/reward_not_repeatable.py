"""The same text gets another reward when it is graded again.

What it is
    A judge that samples, a time limit that depends on the load, a random choice in the grader.
How it shows
    Two gradings of one batch in one order differ. Or siblings that mark one answer, in one form and of no other length,
    have both of the two grades.
What it does to the gradient
    The noise of the grader is in every advantage: more rollouts are needed for the same gradient, and groups that
    are dead in truth look alive.
What to do
    Fix the seed, set the judge's temperature to 0, or grade each text once and keep the result.
What decides
    One batch graded twice: grposcope verify FOLDER --reward MODULE:FUNCTION.
Sources
    verifiers #831, a limit that counts the wait: https://github.com/PrimeIntellect-ai/verifiers/issues/831
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import rewards, texts

FAULT = Fault(
    name="reward not repeatable",
    rank=6.2,
    remedy="fix the seed of the reward function, or grade each text once",
    instead="warning",
    rollouts=(rewards.PROOF, texts.PROOF),
)
