"""Texts repeat a character or a phrase.

What it is
    The policy loops: it fills the limit, or a grader counts what is repeated. Or one character fills all texts from one
    step to the next, as when weights are damaged on their way to the sampler.
How it shows
    A large part of the late texts are mostly one run of a character, or repeat pairs of words far more than the
    early ones.
What it does to the gradient
    Repeated tokens are nearly certain, so they have hardly any gradient but most of the length.
What to do
    If it is paid, correct the grader; else compare the sampler with the trainer's weights, and look at the learning
    rate and at length.
What decides
    The grader on a text and on the same one repeated.
Sources
    open-r1 #403, beside a reward that swings: https://github.com/huggingface/open-r1/issues/403
    Unsloth #1844: https://github.com/unslothai/unsloth/issues/1844
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="repetition",
    rank=39.9,
    remedy="correct the grader if it pays this, else give looping texts no reward and look at the learning rate",
    effect="most of the length is paid for nothing",
    beside="warning",
    rollouts=(texts.PROOF,),
)
