"""`verify` of a plain record of our own names recipe, groups and schedule, which stand in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_runs import config

from grposcope import verify
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.train import evidence
from grposcope.lab.train.loop import train
from grposcope.lab.train.setup import prepare
from grposcope.logs.native.rollouts import _groups
from grposcope.signs.rollouts import pipeline_settings


def test_recipe_groups_and_schedule_are_those_of_the_record(policy: Policy, tmp_path: Path) -> None:
    settings = {"steps": 3, "eval_problems": 0, "rollouts_every": 1, "lr": None, "warmup": 0}
    train(config(policy, tmp_path, **settings))
    answer = verify(tmp_path / "run")
    told = {claim["claim"]: json.dumps(claim["findings"]) for claim in answer.document["claims"]}
    assert answer.word != "failing"
    assert "3 rows of recipe grpo" in answer.text[0]
    assert "The loss is that of recipe grpo" in told["gradient"]
    assert "The loss is unknown" not in told["gradient"]
    assert "do not name their groups" not in told["groups"]
    assert "The record keeps the prompt of each group" in told["groups"]
    assert "follows the schedule linear" in told["first update"]


@pytest.mark.parametrize("recipe", [*recipes.ALL])
def test_the_loss_of_a_record_is_the_one_that_training_states(recipe: str, policy: Policy, tmp_path: Path) -> None:
    """Read back from the objective as the record describes it, of every recipe; None where training has no words."""
    setup = prepare(config(policy, tmp_path, recipe=recipe, steps=2, eval_problems=0))
    document = json.loads(json.dumps({"objective": setup.objective.describe()}))
    assert pipeline_settings._own_loss(pipeline_settings.flat(document)) == evidence._loss(setup)


def test_groups_of_a_file_are_told_apart_where_a_problem_was_drawn_twice() -> None:
    rows = [{"problem": problem, "rollout": place} for problem, place in
            (("a", 0), ("a", 1), ("b", 0), ("b", 2), ("a", 0), ("a", 1), ("a", 0))]  # fmt: skip
    assert _groups(rows) == ["a", "a", "b", "b", "a\x1f1", "a\x1f1", "a\x1f2"]
