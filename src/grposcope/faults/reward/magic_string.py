"""A word, a sign or an ending is paid, whatever the answer.

What it is
    The grader looks for a string, or reads an answer where none is, and the policy found what satisfies it.
How it shows
    Inside the same groups texts with the string are paid more than those without, its share rises, and a true score
    gains less than half as much; or whoever writes it gets the best reward.
What it does to the gradient
    It raises the probability of the string. Once all have it, groups are dead and nothing is learned.
What to do
    Read the pairs with and without; correct the grader so that the string alone earns nothing, and go back to
    before the onset.
What decides
    The grader on wrong answers with the string added, and on right ones with it removed.
Sources
    Visual-RFT #176: https://github.com/Liuziyu77/Visual-RFT/issues/176
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="magic string",
    rank=39.1,
    remedy="correct the grader so that the string alone earns nothing, and go back to the checkpoint before the onset",
    effect="the policy learns what is paid and not what is meant",
    beside="warning",
    gamed=True,
    rollouts=(texts.PROOF,),
)
