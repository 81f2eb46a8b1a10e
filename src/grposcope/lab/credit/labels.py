"""The rewards of steps that rollouts carry, which the sources of per-step credit share."""

from __future__ import annotations

from torch import Tensor

from grposcope.lab.rollout_batch import RolloutBatch


def of_steps(rollouts: RolloutBatch) -> tuple[Tensor, Tensor]:
    """Rewards of the steps on the tokens that end them, and which tokens those are, (B, T) each.

    UserError where the task labels no steps.
    """
    lacking = "per-step credit needs a task that labels steps, such as arithmetic"
    return rollouts.annotation("step_rewards", lacking), rollouts.annotation("step_ends", lacking)
