"""The entropy grows to a multiple of its early value.

What it is
    The policy dissolves into noise: too large steps, too strong an entropy bonus, or rewards for nothing.
How it shows
    Late entropy above three times the early one.
What it does to the gradient
    Scores of unlikely tokens dominate; the signal of the reward drowns in them.
What to do
    Lower the learning rate or the entropy bonus, and check completions for gibberish.
What decides
    Completions from before and after, and the same ten steps without the bonus.
Sources
    theory: policy concentration; the ratio is chosen by this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.entropy import TEST

FAULT = Fault(
    name="entropy explosion",
    rank=90,
    remedy="lower the learning rate or the entropy bonus; check completions for gibberish",
    source="theory: policy concentration; the ratios are chosen by this project",
    effect="answers vary less, so pass@k and exploration may suffer",
    beside="warning",
    log=TEST,
)
