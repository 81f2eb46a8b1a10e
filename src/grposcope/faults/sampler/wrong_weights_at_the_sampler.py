"""From one step on the sampler has other weights than the trainer's of that time.

What it is
    A resumed or restarted sampler that loads the base model, an older checkpoint or adapters of another run.
How it shows
    Mismatch jumps, and grows on from there as the trainer moves away; or it jumps where the log shows a restart.
What it does to the gradient
    All rollouts after the jump are those of another policy.
What to do
    Check which weights the sampler used from that step on, above all after a resume.
What decides
    Checksums of the sampler's weights at the step of the jump, or the checkpoint that scores its rollouts best.
Sources
    TRL #5231: https://github.com/huggingface/trl/issues/5231"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import checkpoints, weights, weights_at_the_sampler
from grposcope.signs.sampler_mismatch import TEST

FAULT = Fault(
    name="wrong weights at the sampler",
    rank=216,
    remedy="check which weights the sampler used from that step on, especially after a resume",
    beside="warning",
    log=TEST,
    rollouts=(weights_at_the_sampler.PROOF, checkpoints.PROOF, weights.PROOF),
)
