"""The trained reward is not the weighted sum that the settings state.

What it is
    Weights of reward functions that are ignored, in another order, applied twice, or of the opposite sign.
How it shows
    Stored rewards are another sum of their functions, or advantages fit other weights than the stated ones.
What it does to the gradient
    The policy is trained on another objective: a component counts more or less than intended, or not at all.
What to do
    Check the weights and the order of the reward functions; print one rollout's rewards with their sum.
What decides
    The rewards by function of one batch beside the reward: grposcope verify FOLDER.
Sources
    alpamayo-recipes #29, a sign: https://github.com/NVlabs/alpamayo-recipes/issues/29
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import advantages, rewards

FAULT = Fault(
    name="wrong reward weights",
    rank=2.2,
    remedy="check the weights of the reward functions and their order",
    beside="warning",
    rollouts=(advantages.PROOF, rewards.PROOF),
)
