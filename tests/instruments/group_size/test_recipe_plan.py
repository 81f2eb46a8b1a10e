"""The best group size of standardized advantages against worlds where it is known exactly."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from places import ROOT

from grposcope.instruments.group_size import recipe_plan
from grposcope.instruments.group_size import size as group_size
from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.objectives.advantages import Advantage
from grposcope.maths import moments

sys.path.insert(0, str(ROOT / "benchmarks"))
from plan_worlds import FAMILIES, World, leave_one_out, standardized  # worlds with known truth


def best(world: World, scale: object, keep_dead: bool = True) -> int:
    errors = [world.error(g, scale(g), keep_dead) for g in range(2, 40)]  # type: ignore[operator]
    return 2 + int(np.argmin(errors))


def probe(world: World, prompts: int, group: int, rng: np.random.Generator) -> moments.Moments:
    scores, rewards = world.draw(prompts, group, rng)
    flat = scores.reshape(prompts * group, -1)
    return moments.from_gram(flat @ flat.T, rewards, replicates=20)


def test_standardized_advantages_want_larger_groups_and_the_plan_says_so() -> None:
    rng = np.random.default_rng(8)
    world = FAMILIES["softmax"](0.4, rng)
    truth = best(world, standardized)
    assert truth == best(world, leave_one_out) + 1 == 5
    plans = [recipe_plan.standardized(probe(world, 64, 8, rng)) for _ in range(16)]
    assert sum(plan.decided for plan in plans) >= 13
    assert sum(not plan.interval[0] <= truth <= plan.interval[1] for plan in plans) <= 2


@pytest.mark.parametrize("replace_dead", [False, True])
def test_noise_over_signal_is_the_truth_of_the_world(replace_dead: bool) -> None:
    rng = np.random.default_rng(9)
    world = FAMILIES["softmax"](0.4, rng)
    found = [recipe_plan.standardized(probe(world, 128, 6, rng), replace_dead).noise for _ in range(8)]
    for group in (2, 4, 6):
        truth = world.error(group, standardized(group), not replace_dead)
        assert np.mean([noise[group] for noise in found]) == pytest.approx(truth, rel=0.06)


def test_what_cannot_be_told_is_said() -> None:
    rng = np.random.default_rng(10)
    plan = recipe_plan.standardized(probe(FAMILIES["alike"](0.4, rng), 64, 6, rng))
    assert (plan.best, plan.interval[1]) == (0, np.inf)
    hard = recipe_plan.standardized(probe(FAMILIES["classes"](0.02, rng), 32, 6, rng))
    assert hard.reason == "too few informative groups"


def test_every_recipe_has_a_kind() -> None:
    assert {name: recipe.comparison for name, recipe in recipes.ALL.items()} == group_size.KINDS
    known = {name: one.comparison for name, one in advantages.ALL.items() if one.comparison != "unknown"}
    assert known == group_size.BEFORE


@pytest.mark.parametrize(
    ("recipe", "advantage", "kind"),
    [("grpo", "leave_one_out", "leave-one-out"), ("rloo", "standardized", "standardized"), ("ppo", "none", "no group"),
     ("grpo", "mean_normalized", "unknown"), ("dapo", "leave_one_out", "unknown"), ("grpo", "toy", "unknown"),
     ("grpo", "standardized", "standardized"), ("dapo", "standardized", "dead groups replaced")],
)  # fmt: skip
def test_what_is_said_of_a_recipe_with_another_advantage_is_that_of_the_advantage(
    recipe: str, advantage: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Advantage(lambda rewards: rewards, comparison="leave-one-out")
    monkeypatch.setitem(advantages.ALL, "toy", toy)
    world = probe(FAMILIES["alike"](0.4, np.random.default_rng(10)), 16, 4, np.random.default_rng(10))
    facts = SimpleNamespace(prompt_cost=0.0, rollout_cost=1.0, moments=world)
    made = recipes.with_advantage(recipes.ALL[recipe], advantage)
    assert group_size.of_recipe(facts, made.name).kind == kind  # type: ignore[arg-type]
    declared = "leave-one-out" if advantage == "toy" else kind
    assert group_size.of_recipe(facts, made.name, made.comparison).kind == declared  # type: ignore[arg-type]
