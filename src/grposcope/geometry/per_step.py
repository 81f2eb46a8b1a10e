"""Geometry while training: a cheap probe of a batch at hand, as a flat row of numbers for the record of a run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from grposcope.geometry import weightings
from grposcope.geometry.probe import Probe, probe
from grposcope.geometry.weightings import Credit
from grposcope.objectives import Objective
from grposcope.records import Rollouts
from grposcope.ustat import dead_groups

NAMES = tuple(
    f"geometry/{name}"
    for name in (
        "prompts", "dead", "dead_predicted",
        "layer_stable", "layer_participation", "layer_entropy_sq",
        "rollout_stable", "rollout_participation", "rollout_entropy_sq",
        "token_gini", "token_hoyer", "token_top_1", "token_top_5", "token_top_20",
        "parameter_gini", "parameter_hoyer", "parameter_top_1",
        "parameter_below_0.1", "parameter_below_0.01", "parameter_below_0.001",
        "parameter_visible_sgd", "parameter_visible_adam",
        "baseline_gap", "baseline_gap_se", "cancelled", "score_norm", "self_check",
    )
)  # fmt: skip
"""What `step_metrics` gives; `runs.vocabulary` defines each."""


def step_metrics(
    model: Any,
    rollouts: Rollouts,
    recipe: Objective,
    prompts: int = 4,
    temperature: float = 1.0,
    seed: int = 0,
    credit: Credit = "outcome",
    learning_rate: float | None = None,
    check: bool = True,
) -> dict[str, float]:
    """Numbers by `NAMES`, NaN where nothing can be said.

    Taken from the first `prompts` prompts of the batch that have a gradient, or fewer if there are not so many;
    dead groups and their prediction from all of them. learning_rate: for the weights a step would change.
    check: with the self-check, which takes a sixth of the time.
    UserError as from `probe`, but a batch without any gradient is no error; KeyboardInterrupt after Ctrl-C.
    """
    rewards = rollouts.rewards.cpu().numpy()
    found = {"dead": dead_groups.share(rewards).value, "dead_predicted": dead_groups.chance_if_alike(rewards)}
    weights = weightings.of_recipe(recipe, rollouts, credit).weights
    live = weights.reshape(len(rollouts.rewards), -1).any(-1).nonzero()[:prompts, 0]
    found["prompts"] = float(len(live))
    if len(live):
        few = rollouts.take(live)
        seen = probe(model, few, recipe, credit=credit, temperature=temperature, leading=8,
                     learning_rate=learning_rate, seed=seed, check=check)  # fmt: skip
        if not seen.complete:
            raise KeyboardInterrupt
        found |= _flat(seen)
    return {name: found.get(name.removeprefix("geometry/"), math.nan) for name in NAMES}


def _flat(seen: Probe) -> dict[str, float]:
    """A probe's numbers by name; `NAMES` says which are wanted."""
    gap = seen.baseline()[0].covariance
    parts = {
        "layer": {name: estimate.value for name, estimate in seen.mean_ranks(seen.recipe).items()},
        "rollout": seen.rollout_spectrum(seen.recipe).ranks(),
        "token": seen.token_sparsity(),
        "parameter": {name: estimate.value for name, estimate in seen.parameters.items()},
        "baseline": {"gap": gap.value, "gap_se": gap.se},
        "score": {"norm": math.sqrt(float(np.diag(seen.gram).mean()))},
    }
    named = {f"{part}_{name}": value for part, values in parts.items() for name, value in values.items()}
    return named | {"cancelled": seen.credit.cancelled, "self_check": seen.error}
