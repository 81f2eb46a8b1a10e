"""Advantages of several rewards, and what constraints add to them: `maths.aggregation` on the arrays of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.objectives import advantages
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths.aggregation import Aggregation, Components, combine
from grposcope.maths.constraints import LENGTH, Constraint


def combined(rollouts: RolloutBatch, weights: Sequence[float], how: Aggregation) -> Tensor:
    """Advantages (P, G) of the components of the rollouts, 0 for those that left their group.

    UserError for rollouts without components, and weights that do not fit.
    """
    if rollouts.components is None:
        raise UserError("these rollouts have one reward; an aggregation of several needs each of them")
    present = ~rollouts.rewards.isnan()
    parts = rollouts.components.where(present[..., None], torch.nan)
    names = tuple(str(j) for j in range(parts.shape[-1]))
    components = Components.of_groups(
        names, parts.double().numpy(force=True), rollouts.lengths.double().numpy(force=True)
    )
    made = combine(components, weights, how).advantages
    return torch.from_numpy(made).reshape(rollouts.rewards.shape).to(rollouts.rewards)


def constrained_values(rollouts: RolloutBatch, names: Sequence[str], name: str) -> Tensor:
    """Values (P, G) that a constraint speaks of: lengths in tokens, or the reward of that name; NaN where absent."""
    if name in names and rollouts.components is not None:
        values = rollouts.components[..., list(names).index(name)]
    elif name == LENGTH:
        values = rollouts.lengths.reshape(rollouts.rewards.shape)
    else:
        values = rollouts.rewards
    return values.double().where(~rollouts.rewards.isnan(), torch.nan)


def penalty(values: Tensor, constraint: Constraint, multiplier: float) -> Tensor:
    """−multiplier · Z of the constraint's cost, (P, G); values as `constrained_values` returns them."""
    costs = torch.from_numpy(constraint.costs(values.numpy(force=True))).to(values)
    return -multiplier * advantages.standardized(costs)
