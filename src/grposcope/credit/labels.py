"""The rewards of steps that rollouts carry, which the sources of per-step credit share."""

from __future__ import annotations

from torch import Tensor

from grposcope.errors import UserError
from grposcope.records import Rollouts


def of_steps(rollouts: Rollouts) -> tuple[Tensor, Tensor]:
    """Rewards of the steps on the tokens that end them, and which tokens those are, (B, T) each.

    UserError where the task labels no steps.
    """
    if rollouts.step_rewards is None or rollouts.step_ends is None:
        raise UserError("per-step credit needs a task that labels steps, such as arithmetic")
    return rollouts.step_rewards, rollouts.step_ends
