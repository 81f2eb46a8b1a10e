"""Tokens that a tool or an environment wrote have a weight in the loss.

What it is
    A mask of the whole completion in rollouts of several turns.
How it shows
    The mask is 1 on tokens that tool_mask marks as written by others.
What it does to the gradient
    The policy learns to write the tool's answers itself; these tokens are unlikely under it, so they dominate the
    update.
What to do
    Mask what tools wrote, and keep attending to it.
What decides
    tool_mask beside the mask of one rollout: grposcope verify FOLDER.
Sources
    TRL #4974: https://github.com/huggingface/trl/issues/4974
    Search-R1, masking of retrieved tokens: https://arxiv.org/abs/2503.09516"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import tokens

FAULT = Fault(
    name="tool output trained on",
    rank=4.4,
    remedy="leave the tokens of tools and environments out of the mask, where it is built",
    beside="warning",
    rollouts=(tokens.PROOF,),
)
