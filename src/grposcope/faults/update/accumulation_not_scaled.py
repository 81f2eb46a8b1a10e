"""Gradients of micro-batches are added up without division.

What it is
    A loss that the trainer no longer divides by the number of passes, which nothing else divides either.
How it shows
    The derivatives of the loss are as many times too large as there are passes.
What it does to the gradient
    Every step is larger by the number of passes: the clip of the norm bites all the time, and the rate is not the
    stated one.
What to do
    Divide the loss of each pass by their number, or the sum once.
What decides
    The norm of the gradient of one batch with one pass and with several.
Sources
    TRL #3021: https://github.com/huggingface/trl/issues/3021
    Hugging Face, gradient accumulation: https://huggingface.co/blog/gradient_accumulation"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import gradient

FAULT = Fault(
    name="accumulation not scaled",
    rank=7.4,
    remedy="divide the loss of each pass by the number of passes",
    source="TRL #3021; Hugging Face",
    beside="warning",
    rollouts=(gradient.PROOF,),
)
