"""A probe of several rewards while training: what each reward and constraint moves of the update's own gradient.

It takes the inner products of scores that the probe of the geometry measured anyway, and no pass of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from grposcope.instruments.rewards.probe_file import RewardProbe
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths import component_gradients
from grposcope.maths.aggregation import Components, Floats

CONSTANT = 1e-4
"""Difference of credit or coefficients along a completion, against the largest, up to which they are constant."""


def measure(
    step: int,
    rollouts: RolloutBatch,
    objective: Objective,
    rewards: Sequence[tuple[str, float]],
    credit: Tensor,
    penalties: Mapping[str, Tensor],
    gram: Floats,
    rows: Tensor,
) -> RewardProbe | None:
    """What each reward and constraint moves; None where that does not follow from the inner products.

    rollouts: the whole batch. objective: its aggregation is how the rewards were combined. rewards: name and weight of
    each component of the rollouts, or of the one reward. `credit` (B,) or (B, T): the advantages, in which `penalties`
    (B,) of the constraints are contained. gram (b, b): inner products of the scores of its `rows` (b,), whole groups.

    It does not follow where credit or the loss's coefficients differ along a completion, where the advantages are of
    another form, and from a single prompt.
    """
    group = rollouts.groups[1]
    names, weights = [name for name, _ in rewards], [weight for _, weight in rewards]
    if len(names) + sum(bool(penalty.any()) for penalty in penalties.values()) < 2 or len(rows) < 2 * group:
        return None
    whole, coefficients = _constant(credit, rollouts.mask), _constant(objective.coefficients(rollouts), rollouts.mask)
    if whole is None or coefficients is None:
        return None
    added = {name: values.reshape(-1).double().numpy(force=True) for name, values in penalties.items() if values.any()}
    known = ~rollouts.rewards.isnan().any(-1).numpy(force=True)  # groups without a lost rollout
    kept = np.repeat(known, group)
    single = rollouts.rewards[..., None] if rollouts.components is None else rollouts.components
    components = single.flatten(0, 1).double().numpy(force=True)[kept]
    lengths = rollouts.lengths.double().numpy(force=True)[kept]
    batch = Components.of_groups(names, components.reshape(int(known.sum()), group, -1), lengths)
    plain = whole[kept] - sum((values[kept] for values in added.values()), np.zeros(int(kept.sum())))
    of_rewards = component_gradients.parts(batch, weights, plain, objective.aggregation)
    if of_rewards is None:
        return None
    every = np.zeros((len(kept), len(names) + len(added)))
    every[kept] = np.column_stack([of_rewards, *(values[kept] for values in added.values())])
    which = rows.numpy(force=True)
    shape = len(which) // group, group
    # a prompt's gradient is such that the batch's is the mean over its prompts; `gradient_products` divides by G
    parts = (every * coefficients[:, None])[which].reshape(*shape, -1) * len(kept)
    products = component_gradients.gradient_products(gram.reshape(*shape, *shape), parts)
    return RewardProbe(step, (*names, *added), len(added), products) if np.isfinite(products).all() else None


def _constant(values: Tensor, mask: Tensor) -> Floats | None:
    """Values (B,) of the rollouts, from (B,) or (B, T); None where they differ along one."""
    if values.dim() == 1:
        return np.asarray(values.double().numpy(force=True))
    values = values.double()
    highest, lowest = values.masked_fill(~mask, -torch.inf).amax(-1), values.masked_fill(~mask, torch.inf).amin(-1)
    some = mask.any(-1)
    size = float(values.where(mask, 0.0).abs().max())
    if bool(((highest - lowest)[some] > CONSTANT * size).any()):
        return None
    return np.asarray(torch.where(some, (highest + lowest) / 2, 0.0).numpy(force=True))
