"""Prompts come again within an epoch.

Asked as
    Does resuming from a checkpoint train on the same prompts again?
What it is
    The position in the data is not restored after a restart, or several processes draw the same prompts.
How it shows
    Prompts of an epoch are in two batches of it, in order; after a restart, those of the first steps come again.
What it does to the gradient
    Some prompts are trained on twice and others never: the policy overfits the beginning of the data.
What to do
    Restore the state of the data loader with the checkpoint (ignore_data_skip=False in TRL).
What decides
    The prompts around the restart: grposcope verify FOLDER.
Sources
    verl #389, stateful data loader: https://github.com/verl-project/verl/pull/389
    ms-swift #10050, accelerate #4071, an epoch in the order of the first: https://github.com/modelscope/ms-swift/issues/10050
    EasyR1 #57: https://github.com/hiyouga/EasyR1/issues/57"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import resume

FAULT = Fault(
    name="repeated data",
    rank=8.6,
    remedy="restore the position in the data with the checkpoint",
    beside="warning",
    rollouts=(resume.PROOF,),
)
