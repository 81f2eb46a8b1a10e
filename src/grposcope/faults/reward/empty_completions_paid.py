"""An empty completion is paid like the best.

What it is
    Texts that are lost between sampler and reward function, or a reward of form that nothing violates.
How it shows
    Completions without a token have the highest reward, or are paid more than others of their groups and become more.
What it does to the gradient
    It raises the probability of ending at once: completions shrink to nothing while the reward rises.
What to do
    Check whether texts were lost, and give an empty completion no reward.
What decides
    The reward function on an empty text.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import rewards, texts

FAULT = Fault(
    name="empty completions paid",
    rank=6.0,
    remedy="check whether texts were lost between sampler and reward function, and give an empty completion no reward",
    beside="failing",
    rollouts=(rewards.PROOF, texts.PROOF),
)
