"""The policy writes one text, or gives one answer, for different prompts.

What it is
    It collapsed: a learning rate that is too high, or a grader that pays one answer everywhere.
How it shows
    A large part of the pairs of texts for different prompts are the same; early ones were not.
What it does to the gradient
    Groups of equal texts have no signal, so training cannot leave this state by itself.
What to do
    Go back to before the onset with a smaller learning rate or a KL penalty; if the text is paid, correct the
    grader.
What decides
    The grader on this text for prompts whose answer is another.
Sources
    SPG #2: https://github.com/facebookresearch/SPG/issues/2
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="one text",
    rank=39.7,
    remedy="go back to before the onset with a smaller learning rate, or correct the grader if it pays the text",
    effect="groups of equal texts teach nothing",
    beside="warning",
    rollouts=(texts.PROOF,),
)
