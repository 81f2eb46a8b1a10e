"""Letters of scripts that the prompts do not have spread in the texts.

What it is
    The policy mixes languages: drift that nothing holds, one broken step of the sampler, or a grader that pays it.
How it shows
    The share of texts with letters of other scripts rises, whatever is paid; the prompts have none.
What it does to the gradient
    None by itself; what pays for it moves it on.
What to do
    If it is paid, correct the grader; else add a reward for the language of the prompt, or a KL penalty.
What decides
    The grader on a text and on the same one with a sentence of another script.
Sources
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="language mixing",
    rank=39.85,
    remedy="correct the grader if it pays this, else reward the language of the prompt or add a KL penalty",
    effect="the texts may be of no use to a reader",
    beside="note",
    instead="warning",
    rollouts=(texts.PROOF,),
)
