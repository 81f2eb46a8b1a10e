"""Rollouts are compared with those of other prompts.

What it is
    Groups that are cut from a list that is not ordered by prompt, too large groups, or ids of groups that are used
    twice.
How it shows
    Groups hold several prompts, or advantages fit groups formed across prompts.
What it does to the gradient
    The baseline is a mean over prompts: rollouts of easy prompts win over those of hard ones whatever they did, so
    the gradient is mostly noise.
What to do
    Order rollouts by prompt before splitting them into groups, or carry a group id.
What decides
    The prompts of one group: grposcope verify FOLDER.
Sources
    TRL #6673, prompts out of order in tool loops: https://github.com/huggingface/trl/pull/6673
    TRL #3098: https://github.com/huggingface/trl/issues/3098"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import advantages, groups

FAULT = Fault(
    name="mixed prompts",
    rank=3.4,
    remedy="order rollouts by prompt before splitting them into groups",
    beside="failing",
    rollouts=(groups.PROOF, advantages.PROOF),
)
