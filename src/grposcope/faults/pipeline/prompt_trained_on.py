"""Tokens of the prompt have a weight in the loss.

What it is
    A mask over prompt and completion that is 1 on both, or one that begins too early.
How it shows
    The mask is 1 on tokens of the prompt.
What it does to the gradient
    The policy learns to write prompts, or to avoid them, by the sign of the advantage; long prompts dominate the
    loss.
What to do
    Begin the mask at the first token that the policy drew.
What decides
    Tokens and mask of one rollout side by side: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import tokens

FAULT = Fault(
    name="prompt trained on",
    rank=4.2,
    remedy="print the tokens and the mask of the named rollout side by side, and correct the mask where it is built",
    beside="warning",
    rollouts=(tokens.PROOF,),
)
