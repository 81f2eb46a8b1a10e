"""No token of any rollout is in the mask of the loss.

What it is
    The mask is 0 throughout: built for another template, or from a role or a flag that no token has.
How it shows
    In rollouts: no mask has a 1 although completions have tokens. In a log: loss and gradient are 0, and so is the
    mismatch to the sampler, which no engine has where it takes a mean over tokens.
What it does to the gradient
    It is 0, whatever the rewards are.
What to do
    Print the mask of one batch as the loss sees it, beside its tokens, and correct where it is built.
What decides
    The sum of the mask of one batch: grposcope verify FOLDER.
Sources
    NeMo-Gym #1612: https://github.com/NVIDIA-NeMo/Gym/pull/1612
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.lost_gradient import MASK, TEST
from grposcope.signs.rollouts.claims import tokens

FAULT = Fault(
    name="no token trained on",
    rank=4.1,
    remedy=MASK,
    effect="nothing is learned",
    beside="failing",
    log=TEST,
    rollouts=(tokens.PROOF,),
)
