"""The reward is lost for a few steps, at one interval or with other completions, and is back.

Asked as
    reward drops to 0 after every validation
What it is
    What draws or grades the rollouts was another for these steps: a sampler that woke without its weights, the first
    steps after a resume, a grader or tool that was down.
How it shows
    Single rows, or a few, far below their neighbours; every so many steps, as evaluations and checkpoints come; or with
    completions of another length, or a larger mismatch between sampler and trainer, in the same rows.
What it does to the gradient
    These steps train on text that the policy did not write; where all rewards are 0 they only cost time.
What to do
    Find what happens right before such a step; compare the sampler's weights with the trainer's.
What decides
    One completion of such a step beside one of the step before it.
Sources
    NeMo-RL #1443: https://github.com/NVIDIA-NeMo/RL/issues/1443
    slime #1695: https://github.com/THUDM/slime/issues/1695
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.outages import BY_THE_CLOCK, OUTAGE, TEST

FAULT = Fault(
    name=OUTAGE,
    rank=8.8,
    remedy=BY_THE_CLOCK,
    effect="these steps train on what the policy did not write, or on nothing",
    beside="warning",
    log=TEST,
)
