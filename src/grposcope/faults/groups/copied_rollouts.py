"""Siblings are copies of each other, not independent draws.

What it is
    Processes of the sampler that have one seed, or completions that are repeated to fill a group.
How it shows
    More equal siblings than their probabilities allow, or equal ones at a fixed distance in the group.
What it does to the gradient
    A group of 8 with every rollout twice is one of 4: groups are dead more often, and the gradient is noisier than
    its batch says.
What to do
    Give every sampling process a seed of its own.
What decides
    Completions of a group beside the sampler's log-probabilities: grposcope verify FOLDER.
Sources
    TRL #2824, a seed for each process: https://github.com/huggingface/trl/pull/2824
    method of this project: an e-value of repeats"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import groups

FAULT = Fault(
    name="copied rollouts",
    rank=4.0,
    remedy="give every sampling process its own seed",
    beside="warning",
    rollouts=(groups.PROOF,),
)
