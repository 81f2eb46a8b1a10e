"""Advantages of several rewards, and what constraints add to them: `maths.aggregation` on the arrays of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths.constraints import LENGTH


def constrained_values(rollouts: RolloutBatch, names: Sequence[str], name: str) -> Tensor:
    """Values (P, G) that a constraint speaks of: lengths in tokens, or the reward of that name; NaN where absent."""
    if name in names and rollouts.components is not None:
        values = rollouts.components[..., list(names).index(name)]
    elif name == LENGTH:
        values = rollouts.lengths.reshape(rollouts.rewards.shape)
    else:
        values = rollouts.rewards
    return values.double().where(~rollouts.rewards.isnan(), torch.nan)
