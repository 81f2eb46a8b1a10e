"""Which gradient is looked at: a recipe's own, its variants over the group size, and controls on the same rollouts.

Rollouts are taken as fresh: the importance ratio is 1 and the weights are w = ∂L/∂log π = −c · A, with the
coefficient c of the reduction and the credit A. Where w is constant along every rollout (outcome rewards)
the gradient is Σ_i u_i s_i and costs no backward pass of its own; u is then given as `rows`.
A KL term or an entropy bonus is left out: they are not made of advantages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from grposcope.credit import per_token
from grposcope.errors import UserError
from grposcope.objectives import Objective, advantages
from grposcope.records import Rollouts

Credit = str
"""A name of `credit.SOURCES`."""

CONTROLS = {
    "shuffled": "the same advantages, dealt out anew among the rollouts of each group",
    "random_tokens": "a random advantage for every token",
    "no_baseline": "the rewards themselves as advantages, which do not sum to zero",
    "nll": "advantage 1 for every rollout: the gradient of the likelihood of what was written",
    "steps": "process supervision from the reward of every step",
}
"""What each control changes; `steps` exists only where the task labels steps."""


@dataclass(frozen=True)
class Setting:
    """One gradient: weights (B, T) with L's gradient Σ w ∇log π; rows (B,) where each rollout has one weight."""

    name: str
    weights: Tensor
    rows: Tensor | None

    @property
    def empty(self) -> bool:
        """Whether all weights are zero."""
        return not bool(self.weights.any())


def setting(name: str, weights: Tensor, mask: Tensor) -> Setting:
    """A setting from weights (B, T); rows are found where they are constant along every rollout."""
    weights = weights.double().where(mask, 0.0)
    highest = weights.masked_fill(~mask, -torch.inf).amax(-1)
    lowest = weights.masked_fill(~mask, torch.inf).amin(-1)
    some = mask.any(-1)
    size = torch.maximum(highest.abs(), lowest.abs())
    constant = ((highest - lowest) <= 1e-9 * size) | ~some
    rows = torch.where(some, (highest + lowest) / 2, 0.0) if bool(constant.all()) else None
    return Setting(name, weights, rows)


def proportional(wanted: Mapping[str, Setting]) -> dict[str, tuple[str, float]]:
    """Of each setting with rows: the first of those whose rows are the same but for a factor, and the factor's size.

    Their gradients differ by that factor alone. So do grpo and dr_grpo on one prompt with completions of equal length.
    """
    found: dict[str, tuple[str, float]] = {}
    firsts: dict[str, tuple[Tensor, float]] = {}
    for name, one in wanted.items():
        if one.rows is None:
            continue
        size = float(torch.linalg.vector_norm(one.rows))
        unit = one.rows / size
        for first, (other, its_size) in firsts.items():
            if min(float((unit - other).abs().max()), float((unit + other).abs().max())) <= 1e-12:
                found[name] = first, size / its_size
                break
        else:
            found[name] = name, 1.0
            firsts[name] = unit, size
    return found


def of_recipe(recipe: Objective, rollouts: Rollouts, credit: Credit | Tensor = "outcome", name: str = "") -> Setting:
    """The recipe's gradient; credit is a name of `credit.SOURCES`, or advantages per token (B, T)."""
    bare = replace(recipe, kl=0.0, entropy=0.0)
    given = credit.double() if isinstance(credit, Tensor) else per_token(credit, bare, rollouts, torch.float64)
    fresh = torch.zeros(rollouts.mask.shape, dtype=torch.float64, device=rollouts.mask.device)
    return setting(name or recipe.name, bare.weights(fresh, fresh, rollouts, credit=given), rollouts.mask)


def smaller_group(recipe: Objective, rollouts: Rollouts, group: int) -> Setting:
    """The recipe's gradient from the first `group` rollouts of every prompt, the others left out."""
    prompts, drawn = rollouts.groups
    if not 2 <= group <= drawn:
        raise UserError(
            f"--sweep-group {group} needs 2 to {drawn} rollouts per prompt, as many as were drawn (--group)"
        )
    rows = (torch.arange(prompts)[:, None] * drawn + torch.arange(group)).reshape(-1).to(rollouts.mask.device)
    few = of_recipe(recipe, first(rollouts, group))
    weights = torch.zeros(rollouts.mask.shape, dtype=torch.float64, device=rollouts.mask.device)
    weights[rows] = few.weights
    return setting(f"{recipe.name}, G={group}", weights, rollouts.mask)


def first(rollouts: Rollouts, group: int) -> Rollouts:
    """The first `group` rollouts of every prompt."""
    prompts, drawn = rollouts.groups
    rows = (torch.arange(prompts)[:, None] * drawn + torch.arange(group)).reshape(-1).to(rollouts.mask.device)
    arrays = {name: getattr(rollouts, name) for name in Rollouts.__dataclass_fields__ if name != "rewards"}
    kept: dict[str, Any] = {name: None if array is None else array[rows] for name, array in arrays.items()}
    return Rollouts(rewards=rollouts.rewards[:, :group], **kept)


def controls(recipe: Objective, rollouts: Rollouts, seed: int = 0) -> list[Setting]:
    """The recipe's gradient with its advantages exchanged for others, on the same rollouts: see `CONTROLS`."""
    generator = torch.Generator().manual_seed(seed)
    prompts, group = rollouts.groups
    device = rollouts.mask.device

    def constant(values: Tensor) -> Tensor:
        return values.double().to(device).reshape(-1, 1) * rollouts.mask

    own = recipe.advantage(rollouts.rewards)
    order = torch.stack([torch.randperm(group, generator=generator) for _ in range(prompts)]).to(device)
    dealt = own.gather(-1, order)
    noise = torch.randn(rollouts.mask.shape, generator=generator, dtype=torch.float64).to(device) * rollouts.mask
    found = [
        of_recipe(recipe, rollouts, constant(dealt), "shuffled"),
        of_recipe(recipe, rollouts, noise, "random_tokens"),
        of_recipe(recipe, rollouts, constant(advantages.none(rollouts.rewards)), "no_baseline"),
        of_recipe(recipe, rollouts, constant(torch.ones_like(rollouts.rewards)), "nll"),
    ]
    if rollouts.step_rewards is not None:
        found.append(of_recipe(recipe, rollouts, "steps", "steps"))
    return found
