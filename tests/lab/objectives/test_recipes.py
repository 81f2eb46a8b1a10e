"""What a recipe says of itself: its paper, its degenerate cases, its description in the record of a run."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace

import pytest
import torch
from cases import CASES, OBJECTIVES

from grposcope.core.errors import UserError
from grposcope.lab.objectives import Objective, recipes

LIVE = CASES[0]
every_recipe = pytest.mark.parametrize("recipe", recipes.ALL.values(), ids=lambda r: r.name)
every_objective = pytest.mark.parametrize("recipe", OBJECTIVES, ids=lambda r: r.name)


@every_objective
def test_a_description_is_complete_plain_json(recipe: Objective) -> None:
    description = recipe.at_length(64).describe()
    assert json.loads(json.dumps(description)) == description
    assert description.keys() == {field.name for field in fields(Objective)}


def test_descriptions_tell_objectives_apart() -> None:
    prose = {"name", "paper", "degenerate"}
    composed = [r for r in OBJECTIVES if r.name != "ppo_critic"]  # that of ppo: its critic is a source of credit
    formulas = [{k: v for k, v in r.describe().items() if k not in prose} for r in composed]
    assert len({json.dumps(formula) for formula in formulas}) == len(composed)


def test_a_description_names_the_parameters() -> None:
    assert recipes.DR_GRPO.at_length(64).describe()["reduction"] == {"function": "constant_length", "length": 64}
    assert recipes.DAPO.describe()["surrogate"] == {"function": "clip", "low": 0.2, "high": 0.28, "bound": None}
    assert recipes.GRPO.describe()["divergence"] == "k3"


@every_recipe
def test_a_recipe_names_its_paper(recipe: Objective) -> None:
    assert re.search(r"arXiv:\d{4}\.\d{5}|Machine Learning 8, 229-256", recipe.paper)


@every_recipe
def test_a_group_of_one_is_as_stated(recipe: Objective) -> None:
    single = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)
    assert ("G = 1: refused" in recipe.degenerate) != ("any G" in recipe.degenerate)
    if "any G" in recipe.degenerate:
        assert recipe.advantage(single).isfinite().all()
    else:
        with pytest.raises(UserError, match="G = 1"):
            recipe.advantage(single)


@every_recipe
def test_equal_rewards_are_as_stated(recipe: Objective) -> None:
    equal = replace(LIVE.rollouts, rewards=torch.full((2, 4), 0.1, dtype=torch.float64))
    contributes = bool(recipe.weights(LIVE.logp, LIVE.old, equal).any())
    assert contributes == ("still contribute" in recipe.degenerate)
    if "the group contributes 0" in recipe.degenerate:
        dead = next(c for c in CASES if c.name == "dead group")
        assert not recipe.weights(dead.logp, dead.old, dead.rollouts)[[0, 1, 2, 6, 7, 8]].any()


def test_negative_rewards_are_as_stated() -> None:
    below = replace(LIVE.rollouts, rewards=LIVE.rollouts.rewards - 0.5)
    for recipe in recipes.ALL.values():
        if "Rewards below 0: refused" in recipe.degenerate:
            with pytest.raises(UserError, match="rewards ≥ 0"):
                recipe.loss(LIVE.logp, LIVE.old, below)
        else:
            assert recipe.loss(LIVE.logp, LIVE.old, below).isfinite()
