"""Advantages are divided by something else than the settings state.

What it is
    The deviation of the batch in place of the group's, another ddof or ε, or no division at all.
How it shows
    Advantages are exactly those of a recipe with another scale, ddof or ε.
What it does to the gradient
    Prompts are weighted otherwise: dividing by the group's deviation favours prompts that are nearly always or
    nearly never solved; ddof is a factor of √(G/(G − 1)); ε decides what groups of nearly equal rewards weigh.
What to do
    Correct the divisor (scale_rewards in TRL), or state the one that is meant.
What decides
    Rewards, groups and advantages of one batch: grposcope verify FOLDER.
Sources
    Dr. GRPO: https://arxiv.org/abs/2503.20783
    TRL, scale_rewards"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import advantages

FAULT = Fault(
    name="wrong divisor",
    rank=3.0,
    remedy="correct the divisor of the advantages (scale_rewards in TRL), or state the one you intend",
    instead="warning",
    rollouts=(advantages.PROOF,),
)
