"""Several updates on a batch, and every one of them takes the ratio for 1.

Asked as
    The clip fraction is exactly 0 although each batch is used several times
What it is
    The old log-probabilities are computed anew before every update, or are those of the loss without a gradient, so
    that the ratio is the policy to itself.
How it shows
    The derivatives of a later update are −cA at every token, whatever the recorded log-probabilities say of the ratio;
    in a log, a clip fraction of exactly 0 in every row.
What it does to the gradient
    Nothing bounds how far a batch is followed, and tokens have the weight of the first update in each: the updates
    after the first are off-policy without a correction.
What to do
    Compute the old log-probabilities once, when the batch is drawn, and keep them for all of its updates.
What decides
    The derivatives and log-probabilities of a second update on one batch: train with verify_every.
Sources
    arXiv:1707.06347: https://arxiv.org/abs/1707.06347
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import gradient

FAULT = Fault(
    name="ratio always 1",
    rank=7.3,
    remedy="compute the old log-probabilities once, when the batch is drawn, and keep them for all of its updates",
    beside="warning",
    rollouts=(gradient.PROOF,),
)
