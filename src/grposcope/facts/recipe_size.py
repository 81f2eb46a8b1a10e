"""Facts of the best group size for the recipe that is trained, beside that for leave-one-out advantages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grposcope.facts.group_size import GroupSize
from grposcope.formatting import span
from grposcope.ustat import recipe_plan
from grposcope.ustat.recipe_plan import RecipePlan

Kind = Literal["leave-one-out", "standardized", "dead groups replaced", "no group", "unknown"]

KINDS: dict[str, Kind] = {
    "rloo": "leave-one-out",
    "dr_grpo": "leave-one-out",
    "batch_grpo": "leave-one-out",
    "grpo": "standardized",
    "gspo": "standardized",
    "cispo": "standardized",
    "dapo": "dead groups replaced",
    "reinforce": "no group",
    "ppo": "no group",
    "ppo_critic": "no group",
    "maxrl": "unknown",
}
"""Recipe -> how its advantages compare the rollouts of a group. Weights by length and clipping are left out."""

ADVANTAGES: dict[str, Kind] = {
    "leave_one_out": "leave-one-out",
    "centered": "leave-one-out",
    "batch_standardized": "leave-one-out",
    "standardized": "standardized",
    "none": "no group",
    "whitened": "no group",
}
"""Advantage -> the same, for a recipe that has another one than its own."""


@dataclass(frozen=True)
class RecipeSize:
    """The best group size for one recipe; plan: for standardized advantages alone, None for others."""

    recipe: str
    kind: Kind
    plan: RecipePlan | None

    def sentence(self) -> str:
        """Which recipe the best group size is for, and what it is for a recipe of standardized advantages."""
        if self.plan is None:
            return f"For recipe {self.recipe}: {_WITHOUT_PLAN[self.kind]}"
        start, plan = f"For recipe {self.recipe}, whose advantages are divided by the group's spread,", self.plan
        if plan.reason:
            return f"{start} the best G cannot be told: {plan.reason}."
        low, high = plan.interval
        if plan.decided:
            return f"{start} best G = {plan.best} (95% interval {span(low, high)}), by noise over signal."
        told = f"the best G is at least {plan.at_least} (95%)" if plan.at_least else "the best G cannot be told"
        return (
            f"{start} {told}: the probe does not show whether groups as large as its own "
            f"{plan.largest} rollouts or larger would be better; probe larger groups or more prompts."
        )


_WITHOUT_PLAN: dict[Kind, str] = {
    "leave-one-out": "the answer is the one for leave-one-out advantages, from which its gradient differs by a scale.",
    "no group": (
        "its advantages do not compare rollouts of a group, so a further prompt is always worth at least as much as a "
        "further rollout of the same prompt, and the answer for leave-one-out advantages does not apply."
    ),
    "unknown": "cannot tell; the answer is for leave-one-out advantages.",
}


def of_recipe(facts: GroupSize, recipe: str) -> RecipeSize:
    """The best group size for `recipe`, from the moments of a probe; "unknown" for one that is not in KINDS.

    A variant, such as "grpo, dapo loss", is of the kind of the recipe before the comma, whose advantage it has, but for
    "grpo, centered advantage" and the like, which is of the kind of that advantage.
    """
    base, _, variant = recipe.partition(", ")
    kind = KINDS.get(base, "unknown")
    if variant.endswith(" advantage"):
        replaced = kind == "dead groups replaced"
        kind = "unknown" if replaced else ADVANTAGES.get(variant.removesuffix(" advantage"), "unknown")
    if kind not in ("standardized", "dead groups replaced"):
        return RecipeSize(recipe, kind, None)
    costs = (facts.prompt_cost, facts.rollout_cost)
    return RecipeSize(recipe, kind, recipe_plan.standardized(facts.moments, kind == "dead groups replaced", *costs))
