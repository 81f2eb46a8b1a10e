"""Tokens that the policy drew have no weight in the loss.

What it is
    A mask that is too short, or one that leaves out turns of the policy along with those of tools.
How it shows
    The mask is 0 on tokens between the first and the end that nobody else wrote.
What it does to the gradient
    What is left out is never reinforced: early turns, or the tail of long answers, get no gradient.
What to do
    Mask only what others wrote.
What decides
    Tokens, tool_mask and mask of one rollout: grposcope verify FOLDER.
Sources
    ms-swift #7838, only the last turn in the loss: https://github.com/modelscope/ms-swift/pull/7838
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import tokens

FAULT = Fault(
    name="tokens left out",
    rank=5.2,
    remedy="print the tokens and the mask of the named rollout side by side, and correct the mask where it is built",
    beside="warning",
    rollouts=(tokens.PROOF,),
)
