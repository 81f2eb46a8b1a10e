"""Weightings of the rollouts, each of which gives a gradient: a recipe's, smaller groups, and controls.

Rollouts are taken as fresh unless a log ratio is given: the importance ratio is 1 and the weights are
w = ∂L/∂log π = −c · A, with the coefficient c of the reduction and the credit A. Where w is constant along every
rollout (outcome rewards) the gradient is Σ_i u_i s_i and costs no backward pass of its own; u is then given as
`per_rollout`. A KL term or an entropy bonus is left out: they are not made of advantages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.credit import per_token
from grposcope.lab.objectives import Objective, advantages
from grposcope.lab.rollout_batch import RolloutBatch

CONTROLS = {
    "shuffled": "the same advantages, permuted among the rollouts of each group",
    "random_tokens": "a random advantage for every token",
    "no_baseline": "the rewards themselves as advantages, which do not sum to zero",
    "nll": "advantage 1 for every rollout: the gradient of the log-likelihood",
    "steps": "rewards of the steps still to come, minus those of the other rollouts",
}
"""What each control changes; `steps` exists only where the task labels steps."""


@dataclass(frozen=True)
class Weighting:
    """Weights w (B, T) of the gradient Σ w ∇log π; per_rollout: u (B,), or None where w varies along a rollout."""

    name: str
    weights: Tensor
    per_rollout: Tensor | None

    @property
    def empty(self) -> bool:
        """Whether all weights are zero."""
        return not bool(self.weights.any())


def _weighting(name: str, weights: Tensor, mask: Tensor) -> Weighting:
    """The weighting with weights (B, T); checks whether they are constant along every rollout."""
    weights = weights.double().where(mask, 0.0)
    highest = weights.masked_fill(~mask, -torch.inf).amax(-1)
    lowest = weights.masked_fill(~mask, torch.inf).amin(-1)
    some = mask.any(-1)
    size = torch.maximum(highest.abs(), lowest.abs())
    constant = ((highest - lowest) <= 1e-9 * size) | ~some
    per_rollout = torch.where(some, (highest + lowest) / 2, 0.0) if bool(constant.all()) else None
    return Weighting(name, weights, per_rollout)


def proportional(wanted: Mapping[str, Weighting]) -> dict[str, tuple[str, float]]:
    """Name -> (first weighting with the same u up to a factor, absolute value of that factor); only where u exists.

    Gradients of proportional weightings differ by the factor alone, so their spectra are shared. Example: grpo and
    dr_grpo on one prompt with completions of equal length.
    """
    shared: dict[str, tuple[str, float]] = {}
    firsts: dict[str, tuple[Tensor, float]] = {}
    for name, weighting in wanted.items():
        if weighting.per_rollout is None:
            continue
        size = float(torch.linalg.vector_norm(weighting.per_rollout))
        unit = weighting.per_rollout / size
        for first, (other, its_size) in firsts.items():
            if min(float((unit - other).abs().max()), float((unit + other).abs().max())) <= 1e-12:
                shared[name] = first, size / its_size
                break
        else:
            shared[name] = name, 1.0
            firsts[name] = unit, size
    return shared


def of_recipe(
    recipe: Objective,
    rollouts: RolloutBatch,
    credit: str | Tensor = "outcome",
    name: str = "",
    log_ratio: Tensor | None = None,
) -> Weighting:
    """The weights of a recipe. credit: a name of `lab.credit.SOURCES`, or advantages per token (B, T).

    log_ratio (B, T): log π/π_old of each token, for rollouts whose update has a ratio; 0 by default.
    """
    bare = replace(recipe, kl=0.0, entropy=0.0)
    values = credit.double() if isinstance(credit, Tensor) else per_token(credit, bare, rollouts, torch.float64)
    fresh = torch.zeros(rollouts.mask.shape, dtype=torch.float64, device=rollouts.mask.device)
    now = fresh if log_ratio is None else log_ratio.to(fresh)
    return _weighting(name or recipe.name, bare.weights(now, fresh, rollouts, credit=values), rollouts.mask)


def smaller_group(recipe: Objective, rollouts: RolloutBatch, group: int) -> Weighting:
    """Weights of the recipe for the first `group` rollouts of every prompt, 0 for the others; UserError for G < 2."""
    prompts, drawn = rollouts.groups
    if not 2 <= group <= drawn:
        raise UserError(
            f"a smaller group of {group} cannot be taken from {drawn} rollouts per prompt; choose 2 to "
            f"{drawn}, or draw more rollouts"
        )
    few = of_recipe(recipe, _first_rollouts(rollouts, group))
    weights = torch.zeros(rollouts.mask.shape, dtype=torch.float64, device=rollouts.mask.device)
    weights.unflatten(0, (prompts, drawn))[:, :group] = few.weights.unflatten(0, (prompts, group))
    return _weighting(f"{recipe.name}, G={group}", weights, rollouts.mask)


def _first_rollouts(rollouts: RolloutBatch, group: int) -> RolloutBatch:
    """The batch with only the first `group` rollouts of every prompt."""
    return rollouts.columns(slice(group))


def controls(recipe: Objective, rollouts: RolloutBatch, seed: int = 0) -> list[Weighting]:
    """The recipe with its advantages replaced by others, on the same rollouts: see `CONTROLS`."""
    generator = torch.Generator().manual_seed(seed)
    prompts, group = rollouts.groups
    device = rollouts.mask.device

    def constant(values: Tensor) -> Tensor:
        return values.double().to(device).reshape(-1, 1) * rollouts.mask

    order = torch.stack([torch.randperm(group, generator=generator) for _ in range(prompts)]).to(device)
    permuted = recipe.advantage(rollouts.rewards).gather(-1, order)
    noise = torch.randn(rollouts.mask.shape, generator=generator, dtype=torch.float64).to(device) * rollouts.mask
    made = [
        of_recipe(recipe, rollouts, constant(permuted), "shuffled"),
        of_recipe(recipe, rollouts, noise, "random_tokens"),
        of_recipe(recipe, rollouts, constant(advantages.none(rollouts.rewards)), "no_baseline"),
        of_recipe(recipe, rollouts, constant(torch.ones_like(rollouts.rewards)), "nll"),
    ]
    if "step_rewards" in rollouts.token_annotations:
        made.append(of_recipe(recipe, rollouts, "steps", "steps"))
    return made
