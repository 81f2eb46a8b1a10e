"""The sampler's log-probabilities stand beside other tokens than they are of.

What it is
    A shift by one between logits and tokens: the logits at a place are of the next token, and one side forgot it, or a
    prompt's last or a completion's first value was cut off.
How it shows
    The sampler's log-probabilities equal the trainer's of the neighbouring token, and not those of their own.
What it does to the gradient
    Importance weights are ratios of two different tokens: with a correction the gradient is noise, without one the
    logged mismatch is.
What to do
    Compare the first and the last log-probability of one rollout on both sides, and cut both at the same end.
What decides
    Tokens, sampler's and trainer's log-probabilities of one rollout, side by side: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import first_update

FAULT = Fault(
    name="misaligned log-probabilities",
    rank=213,
    remedy="compare the first and the last log-probability of one rollout on both sides, and cut both at the same end",
    beside="warning",
    rollouts=(first_update.PROOF,),
)
