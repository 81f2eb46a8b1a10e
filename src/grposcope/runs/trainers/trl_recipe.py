"""The recipe that a run of TRL trained with, by its arguments.

At a ratio of 1, on rollouts of the policy itself, losses of TRL differ in their reduction only: clipping and the level
of importance sampling (gspo, cispo) have no effect on the gradient then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RECIPES = {"grpo": "grpo", "bnpo": "dapo", "dapo": "dapo", "dr_grpo": "dr_grpo", "cispo": "cispo"}
_SCALES = {"group": "standardized", "batch": "batch_standardized", "none": "centered", "true": "standardized",
           "false": "centered"}  # fmt: skip


def recipe(settings: Mapping[str, Any], logged: Mapping[str, Any]) -> dict[str, str]:
    """`recipe` and `advantage` as names of `objectives.recipes` and `advantages`; without those that are not known.

    settings: of the run under our names; logged: the trainer's own arguments.
    """
    if settings.get("trainer") == "rloo":
        return {"recipe": "rloo", "advantage": "leave_one_out"}
    found = {}
    loss = str(logged.get("loss_type", settings.get("loss_type", ""))).lower()
    if loss == "grpo" and logged.get("importance_sampling_level") == "sequence":
        found["recipe"] = "gspo"
    elif loss in _RECIPES:
        found["recipe"] = _RECIPES[loss]
    scale = str(logged.get("scale_rewards", settings.get("scale_rewards", ""))).lower()
    if scale in _SCALES:
        found["advantage"] = _SCALES[scale]
    return found
