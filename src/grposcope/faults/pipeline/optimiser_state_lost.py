"""The optimiser begins without its moments.

What it is
    A restart without the optimiser's state, or an optimiser that is created anew during the run.
How it shows
    Adam's count of updates falls or its second moments shrink faster than β₂ allows; the norm of the gradient jumps
    at a restart.
What it does to the gradient
    The first steps after it are too large: without second moments each is about the learning rate in every
    coordinate.
What to do
    Save and restore the optimiser's state, and create the optimiser once.
What decides
    The optimiser's state in two checkpoints, or a run with verify_every.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import resume

FAULT = Fault(
    name="optimiser state lost",
    rank=8.8,
    remedy="restore the optimiser's state with the checkpoint, and create the optimiser only once",
    beside="warning",
    rollouts=(resume.PROOF,),
)
