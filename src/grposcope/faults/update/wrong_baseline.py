"""Advantages are centred on something else than the settings state.

What it is
    The mean of the batch, that of the other rollouts, or nothing, in place of the mean of the group.
How it shows
    Advantages are exactly those of a recipe with another baseline. Where none is stated: groups of equal rewards have
    advantages, since the mean is that of the batch.
What it does to the gradient
    Without a baseline, or with one over all prompts, the gradient is noisier and favours easy prompts;
    leave-one-out differs from the group's mean by a factor alone.
What to do
    Correct the baseline, or state the one that is meant.
What decides
    Rewards, groups and advantages of one batch: grposcope verify FOLDER.
Sources
    slime #2230, groups of unequal sizes: https://github.com/THUDM/slime/issues/2230
    NeMo-RL #2176, prompts without their turns: https://github.com/NVIDIA-NeMo/RL/pull/2176
    DeepSeekMath, GRPO: https://arxiv.org/abs/2402.03300
    RLOO: https://arxiv.org/abs/2402.14740"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import advantages

FAULT = Fault(
    name="wrong baseline",
    rank=2.8,
    remedy="correct the baseline of the advantages, or state the one you intend",
    instead="warning",
    rollouts=(advantages.PROOF,),
)
