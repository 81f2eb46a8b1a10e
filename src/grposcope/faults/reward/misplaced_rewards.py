"""Rewards stand beside rollouts that did not earn them.

What it is
    Rewards that are gathered, sorted or filtered separately from their rollouts: shifted by a place, permuted
    within groups or over the batch. Or advantages that are, between the reward and the loss.
How it shows
    Advantages, or rewards graded again, are those of a permutation: of a neighbour, of a sibling, of the batch.
    Reward curves look normal, since the mean does not change.
What it does to the gradient
    The gradient is noise where rewards are of others: its expectation is 0 within groups that are permuted.
What to do
    Match rewards and rollouts by an id; look at every gather, sort and filter between the reward function and the
    advantages.
What decides
    Rewards graded again: grposcope verify FOLDER --reward MODULE:FUNCTION.
Sources
    TRL #6673, completions of another rollout in tool loops: https://github.com/huggingface/trl/pull/6673
    tt-metal #46548, advantages in another order than micro-batches: https://github.com/tenstorrent/tt-metal/pull/46548
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import advantages, rewards

FAULT = Fault(
    name="misplaced rewards",
    rank=2.0,
    remedy="find where rewards are gathered or sorted separately from their rollouts, and match both by an id",
    beside="failing",
    rollouts=(advantages.PROOF, rewards.PROOF),
)
