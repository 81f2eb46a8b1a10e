"""The mask of the loss is 0 on what the policy wrote and 1 on the rest.

What it is
    A padding mask, which is True on padding, taken for a mask of tokens, which is True on what is none.
How it shows
    The trained tokens are exactly those after the end, or those of tools, and none of the policy's own.
What it does to the gradient
    Padding is trained on, and nothing that was drawn: the reward does not reach the policy's tokens.
What to do
    Invert the mask where it is built: 1 is a token of the policy, in TRL, verl and here.
What decides
    The ids and the mask of one rollout, side by side: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import tokens

FAULT = Fault(
    name="mask inverted",
    rank=3.05,
    remedy="invert the mask where it is built: 1 is a token of the policy",
    rollouts=(tokens.PROOF,),
)
