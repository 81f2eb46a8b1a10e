"""Whether a rollout is left out of training depends on its reward or its length.

What it is
    A limit of time or length that loses long rollouts, or a filter that keeps what is easy to learn from.
How it shows
    Dropped rollouts differ from their siblings in reward or length by more than permutation allows; or dropped
    groups from kept ones.
What it does to the gradient
    What is left is no sample of the policy: mean reward and gradient are biased toward what is kept, above all
    short answers.
What to do
    Drop by a criterion that does not look at the answer, or keep the dropped rollouts with their reward.
What decides
    Rollouts that were left out beside those that were kept: grposcope verify FOLDER.
Sources
    NeMo-RL #3599, long rollouts lost at restarts: https://github.com/NVIDIA-NeMo/RL/pull/3599
    method of this project: exchangeable siblings"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import dropped_rollouts

FAULT = Fault(
    name="selective dropping",
    rank=6.8,
    remedy="drop by a criterion that does not depend on the answer, or keep the dropped rollouts with their reward",
    beside="warning",
    rollouts=(dropped_rollouts.PROOF,),
)
