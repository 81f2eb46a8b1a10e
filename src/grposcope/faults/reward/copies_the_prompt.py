"""Text or numbers of the prompt are paid as an answer.

What it is
    A grader that accepts any number it knows, or a similarity to a reference that repeats the question.
How it shows
    Texts that repeat the prompt, or give one of its numbers as their answer, are paid more inside the same groups,
    and become more.
What it does to the gradient
    It raises the probability of copying, which needs no work on the problem.
What to do
    Refuse answers that stand in the prompt where they cannot be right, and grade what is added to it.
What decides
    The grader on the prompt itself, and on each of its numbers as the answer.
Sources
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="copies the prompt",
    rank=39.4,
    remedy="refuse answers that are copied from the prompt, and go back to the checkpoint before the onset",
    effect="the policy learns what is paid and not what is meant",
    beside="warning",
    gamed=True,
    rollouts=(texts.PROOF,),
)
