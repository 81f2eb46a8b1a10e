"""Groups do not have the stated number of rollouts.

What it is
    Rollouts that are lost on their way to the trainer, or identified by a prompt that is not the same for all
    siblings.
How it shows
    Groups of other sizes than the stated one; single rollouts where the group is identified by what each rollout
    changes.
What it does to the gradient
    A single rollout has no baseline and teaches nothing; smaller groups have noisier baselines.
What to do
    Find where rollouts are lost between sampler and trainer; identify a group by an id that is given before
    anything is drawn.
What decides
    The sizes of the groups of a batch: grposcope verify FOLDER --set num_generations=8.
Sources
    NeMo-RL #4013, siblings that became singletons: https://github.com/NVIDIA-NeMo/RL/pull/4013
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import groups

FAULT = Fault(
    name="wrong group size",
    rank=3.8,
    remedy="find where rollouts are lost or split between the sampler and the trainer",
    beside="warning",
    rollouts=(groups.PROOF,),
)
