"""After a restart the run goes on from other weights.

What it is
    A checkpoint of an earlier step, the base model, or adapters that are not loaded.
How it shows
    The reward jumps at the restart by more than it changes elsewhere; or KL and reward go back to their first levels
    from one step to the next. A KL that goes back while the reward stays is a reference that was renewed, and no fault.
What it does to the gradient
    What was learned since that checkpoint is gone; steps and schedule go on as if it were not.
What to do
    Load the weights of the step at which the log goes on; compare a checksum.
What decides
    The held-out score of the checkpoint before the restart and after it; or a checksum of the weights on loading.
Sources
    Unsloth #2451: https://github.com/unslothai/unsloth/issues/2451
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.lost_weights import TEST
from grposcope.signs.rollouts.claims import resume

FAULT = Fault(
    name="weights lost at a restart",
    rank=9.0,
    remedy="load the weights of the step at which the run goes on, and compare their checksum with the checkpoint's",
    effect="what was learned before that step is gone",
    beside="warning",
    log=TEST,
    rollouts=(resume.PROOF,),
)
