"""All differences of reward inside groups are of form: what is said is not paid.

What it is
    The format is learned and correctness is not: problems are too hard, the grader cannot read right answers, or
    the weight of the format drowns the rest.
How it shows
    One mark of form has all of the best rewards and none of the lowest ones, in groups that have both; a true score
    does not go with it.
What it does to the gradient
    It is right for the form. When all texts have it, rewards are equal and groups are dead, at a reward that looks
    like progress.
What to do
    Check that right answers are graded as right, take easier problems, or give the format a small weight.
What decides
    The grader on right answers in this form, and the share of problems that the policy solves at all.
Sources
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="format is the whole reward",
    rank=39.3,
    remedy="check that right answers are graded as right, take easier problems, or give the format a smaller weight",
    effect="the policy learns what is paid and not what is meant",
    beside="warning",
    gamed=True,
    rollouts=(texts.PROOF,),
)
