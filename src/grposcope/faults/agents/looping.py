"""Rollouts take more and more turns or calls without more reward.

Asked as
    The agent repeats the same call until the turn limit
What it is
    Another turn costs nothing and puts off the answer; or the loss favours long rollouts, as where each of their
    rows counts as a rollout, or a failure is spread over more tokens.
How it shows
    Turns or calls per rollout half as many again, while the reward does not rise.
What it does to the gradient
    Rollouts reach the limit on turns or tokens, where they are paid alike, so that groups die.
What to do
    Read ten late rollouts for repeated calls; pay an answer less the more turns it took, or stop a rollout that
    repeats a call; let every rollout weigh the same, whatever its turns.
What decides
    E[reward | turns] of the late rollouts, and how many calls repeat an earlier one of their rollout.
Sources
    verl #5375: https://github.com/verl-project/verl/issues/5375
    cua-lite #13, division by a trajectory's tokens
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.agents import LOOPING

FAULT = Fault(
    name="looping",
    rank=139,
    remedy="read ten late rollouts for repeated calls; stop a rollout that repeats a call, or pay an answer less the "
    "more turns it took, and let every rollout weigh the same",
    effect="turns cost time and reach the limit",
    beside="warning",
    log=LOOPING,
)
