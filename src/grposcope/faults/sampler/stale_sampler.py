"""The sampler draws with weights of a fixed number of updates ago.

What it is
    Weights are sent after the next batch is drawn, or every so many steps, and nothing says so.
How it shows
    The tokens of each step are likelier under the checkpoint so many steps before the one that should have drawn
    them.
What it does to the gradient
    Rollouts are off-policy by that lag: ratios are not 1 at the first update, and what is gained per step shrinks.
What to do
    Send the weights before the batch is drawn; where the lag is meant, state it and correct with recorded
    log-probabilities.
What decides
    Several checkpoints over all rollouts in the order drawn: grposcope verify FOLDER --model RUN.
Sources
    AReaL, staleness: https://arxiv.org/abs/2505.24298
    method of this project: likelihood ratios between checkpoints"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import checkpoints, weights

FAULT = Fault(
    name="stale sampler",
    rank=1.4,
    remedy="send the trainer's weights to the sampler before it draws, or state the lag and correct for it",
    source="AReaL; method of this project: likelihood ratios between checkpoints",
    beside="warning",
    rollouts=(checkpoints.PROOF, weights.PROOF),
)
