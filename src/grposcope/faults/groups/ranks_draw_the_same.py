"""Every process draws the same prompts, or the same completions for them too.

Asked as
    Do my GPUs work on different data?
What it is
    A sampler of the data without the rank in its seed or its slice; samplers of completions with one seed.
How it shows
    The groups of a batch are one sequence of prompts, repeated for each process, in every step.
What it does to the gradient
    The batch is smaller than it seems: with equal completions it is that of one process, at the price of all of them.
    Groups of one prompt are larger than stated, but their baselines do not know it.
What to do
    Give each process its own slice of the data (a distributed sampler), and its own seed for drawing completions.
What decides
    The prompts of one batch, process by process: grposcope verify FOLDER.
Sources
    TRL #2824, a seed for each process: https://github.com/huggingface/trl/pull/2824
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import groups

FAULT = Fault(
    name="ranks draw the same",
    rank=3.9,
    remedy="give each process its own slice of the data, and its own seed for drawing completions",
    beside="warning",
    rollouts=(groups.PROOF,),
)
