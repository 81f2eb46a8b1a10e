"""Rollouts that failed for reasons of the infrastructure are trained on as bad answers.

What it is
    Time-outs, lost connections and crashed graders that give a reward of 0.
How it shows
    Rollouts with an error all have one reward and an advantage, or logged rewards are 0 where the function gives
    another. In a log: the reward falls in the rows in which more rollouts failed, by what the others are paid.
What it does to the gradient
    It pushes away from whatever was running when the failure came, and shifts the advantages of all siblings;
    failures of long rollouts are a punishment of length.
What to do
    Leave failed rollouts out of their groups, or draw them again.
What decides
    Rewards of rollouts with an error: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.agents import ERRORS
from grposcope.signs.rollouts.claims import rewards

FAULT = Fault(
    name="failures as zeros",
    rank=5.8,
    remedy="leave failed rollouts out of their groups, or draw them again",
    effect="failures of the infrastructure are learned as bad answers",
    beside="warning",
    log=ERRORS,
    rollouts=(rewards.PROOF,),
)
