"""Long trajectories weigh more, or less, in the loss than it says.

What it is
    Each turn or branch is a row of training, and the loss is a mean over rows; or tokens are divided by a count that
    the stated loss does not have.
How it shows
    The summed weights of a trajectory's tokens, over its advantage, are proportional to its rows or turns.
What it does to the gradient
    With a mean over rows, long rollouts count as often as they have turns; with a mean over a rollout's own turns the
    gradient is that of reward ÷ turns, so that short successes and long failures are learned.
What to do
    Divide by the number of rollouts, or by all tokens of the batch, after rows were put together by rollout.
What decides
    Σ |∂L/∂log π| of rollouts with many and with few turns: grposcope verify FOLDER with loss_weights.
Sources
    miles #2378; agent-lightning #489: https://github.com/microsoft/agent-lightning/issues/489
    TRL #7206: https://github.com/huggingface/trl/issues/7206
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import trajectory_weights

FAULT = Fault(
    name="weight by turns",
    rank=5.3,
    remedy="divide by the number of rollouts, or by all tokens of the batch, after rows were put together by rollout",
    effect="the policy is drawn to other numbers of turns than the reward says",
    beside="warning",
    rollouts=(trajectory_weights.PROOF,),
)
