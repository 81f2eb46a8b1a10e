"""Log, rollouts and checkpoints do not count steps from the same number.

What it is
    Rollouts of step N are written beside N − 1, or checkpoints are named by the step that follows.
How it shows
    Each step's rollouts are likelier under the checkpoint after the expected one, from the first step on.
What it does to the gradient
    None: the gradient is right. Whatever joins log, rollouts and checkpoints by step compares neighbours.
What to do
    Count from the same number everywhere: rollouts of step N + 1 are drawn by the weights after N updates.
What decides
    The first checkpoint and the rollouts of step 1: grposcope verify FOLDER --model RUN.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import checkpoints

FAULT = Fault(
    name="step numbers differ",
    rank=1.6,
    remedy="check whether the log and the checkpoints count steps from the same number",
    instead="note",
    rollouts=(checkpoints.PROOF,),
)
