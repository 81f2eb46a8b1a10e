"""Completions are marked as cut although they ended, or the other way round.

What it is
    A mark that is made from the length, or from the finish reason of another rollout.
How it shows
    The mark does not agree with the last token of the completion.
What it does to the gradient
    None by itself; the rate of truncation is wrong, and so is whatever masks or punishes cut completions.
What to do
    Mark a completion as cut if its end token is missing.
What decides
    The last token of marked completions: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import tokens

FAULT = Fault(
    name="wrong truncation mark",
    rank=5.6,
    remedy="mark a completion as truncated if its end token is missing, not by its length",
    instead="note",
    rollouts=(tokens.PROOF,),
)
