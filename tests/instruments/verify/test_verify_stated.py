"""What the settings of a run say of its pipeline, by the tables of the trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grposcope.core.run import Meta, Run, no_evaluations, no_groups
from grposcope.instruments.verify.caller_settings import StatedByCaller, of_both
from grposcope.logs.trainers import TRAINERS
from grposcope.signs.rollouts.evidence import Stated
from grposcope.signs.rollouts.pipeline_settings import ALIASES, of_run


def stated(logged: dict[str, Any], given: dict[str, Any], engine: str = "trl") -> Stated:
    settings = TRAINERS[engine].settings_of(logged, {}, {})
    config = {"engine": engine, "settings": settings, "logged": logged}
    run = Run(Meta(Path("log"), engine, "log", "finished"), config, {}, no_groups(), no_evaluations())
    return of_both(of_run(run), StatedByCaller(given), engine, ())[0]


@pytest.mark.parametrize(
    ("engine", "logged", "field", "value"),
    [
        ("trl", {"max_completion_length": 512}, "limit", 512),
        ("trl", {"num_iterations": 2}, "iterations", 2),
        ("verl", {"actor_rollout_ref": {"actor": {"ppo_epochs": 3}}}, "iterations", 3),
        ("verl", {"actor_rollout_ref": {"actor": {"grad_clip": 0.5}}}, "clip", 0.5),
        ("prime-rl", {"sampling": {"max_tokens": 256}}, "limit", 256),
        ("nemo-rl", {"grpo": {"num_generations_per_prompt": 16}}, "group", 16),
    ],
)
def test_every_trainer_says_it_in_its_own_words(engine: str, logged: dict[str, Any], field: str, value: float) -> None:
    assert getattr(stated(logged, {}, engine), field) == value


@pytest.mark.parametrize("given", [{"max_tokens": 256}, {"limit": 256}, {"max_completion_length": 256}])
def test_what_is_given_counts_before_what_was_logged_under_whatever_name(given: dict[str, Any]) -> None:
    assert stated({"max_completion_length": 512}, given).limit == 256


def test_a_key_means_one_field() -> None:
    keys = [key for keys in ALIASES.values() for key in keys]
    assert len(set(keys)) == len(keys)
