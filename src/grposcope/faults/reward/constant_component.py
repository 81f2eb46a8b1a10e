"""A reward, of several, that has the same value on every rollout, and so teaches nothing.

What it is
    A reward function that pays everything alike: a format that is always met, a parser that never fails.
How it shows
    Its mean does not move and its spread within groups is 0. One that is 0 throughout is never paid.
What it does to the gradient
    It cancels from every advantage that compares a group; where it is normalized alone it is 0.
What to do
    Run the function by hand on a right and a wrong answer.
What decides
    The smallest and the largest value over a few hundred rollouts of the base model, which grposcope lint reads beside
    the settings.
Sources
    arXiv:2601.05242 (GDPO): https://arxiv.org/abs/2601.05242
    TRL #4841: https://github.com/huggingface/trl/issues/4841"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.checks.effective_weights import CHECK

FAULT = Fault(
    name="constant component",
    rank=3.6,
    remedy="check this reward function by hand",
    effect="the policy learns nothing from it",
    settings=CHECK,
)
