"""What is rewarded is to finish within the limit: the reward rises because fewer texts are cut off.

What it is
    The limit of length is short, so being cut off decides about the reward. It is no exploit.
How it shows
    Texts that are not cut off are paid more inside the same groups, and become more; this goes with much of the
    reward differences.
What it does to the gradient
    It is right, and small where the limit is long enough: texts become shorter rather than better.
What to do
    Raise the limit, or leave cut texts out of the loss, and judge by the texts that finish.
What decides
    The reward of finished texts alone, early and late.
Sources
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="finishing is what is learned",
    rank=70.5,
    remedy="raise the limit of length, and judge by the reward of texts that finish",
    effect="the reward says how many texts finish, not how good they are",
    beside="note",
    instead="warning",
    rollouts=(texts.PROOF,),
)
