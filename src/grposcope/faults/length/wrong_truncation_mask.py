"""Completions that the limit of length cut are not treated as the settings say.

What it is
    mask_truncated_completions that is not applied where the mask is built, or applied though it is off.
How it shows
    Cut completions are trained on although the settings mask them, or the other way round.
What it does to the gradient
    Trained on, they are punished for text that they could not finish; masked, long answers are never punished, so
    they grow.
What to do
    Apply the setting where the mask is built, or state what is meant.
What decides
    The masks of cut completions: grposcope verify FOLDER.
Sources
    DAPO, overlong filtering: https://arxiv.org/abs/2503.14476
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import tokens

FAULT = Fault(
    name="wrong truncation mask",
    rank=5.4,
    remedy="apply mask_truncated_completions where the mask is built, or state what you intend",
    instead="warning",
    rollouts=(tokens.PROOF,),
)
