"""The mask is shifted by one token.

What it is
    Logits of place t predict token t + 1: a shift that is made twice, or not at all.
How it shows
    The first token of completions is left out and one after the last is trained on, or the last is left out and the
    last of the prompt is trained on.
What it does to the gradient
    Every token gets the weight of its neighbour; the end, or the first token, is never learned.
What to do
    Shift logits, ids and mask together, once.
What decides
    Tokens and mask of one rollout side by side: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import tokens

FAULT = Fault(
    name="mask off by one",
    rank=4.6,
    remedy="print the tokens and the mask of the named rollout side by side, and correct the mask where it is built",
    beside="warning",
    rollouts=(tokens.PROOF,),
)
