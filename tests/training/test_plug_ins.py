"""A new advantage, credit, allocator, optimiser or task is one entry of a dict: `train --help` has it and it trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from grposcope import allocation, credit, tasks
from grposcope.allocation import Allocator, picks
from grposcope.allocation.picks import Offer, Picks, Values
from grposcope.cli import parser
from grposcope.credit import CreditSource
from grposcope.errors import UserError
from grposcope.objectives import Objective, advantages
from grposcope.objectives.advantages import Advantage
from grposcope.policies import Policy
from grposcope.records import Rollouts
from grposcope.runs import read
from grposcope.tasks import Problem, Task
from grposcope.training import optimizer
from grposcope.training.config import TrainConfig, check
from grposcope.training.loop import train
from grposcope.training.optimizer import OptimizerKind


def median_centered(rewards: Tensor) -> Tensor:
    return rewards - rewards.median(-1, keepdim=True).values


def first_token(objective: Objective, rollouts: Rollouts) -> Tensor:
    return objective.token_advantages(rollouts) * (torch.arange(rollouts.mask.shape[1]) == 0)


def last_ones(offer: Offer, values: Values) -> Picks:
    which = np.arange(len(offer.random))[-offer.prompts :]
    return picks.groups_of_one_size(offer.rates, which, offer.group, len(offer.random))


def adagrad(parameters: list, lr: float, momentum: float, beta2: float, decay: float) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=lr)


class Vowels(Task):
    """Reward: share of vowels in the completion."""

    name = "vowels"
    max_tokens = 6

    def problems(self, split: str) -> Sequence[Problem]:
        return [Problem(f"{split}-{n}", f"say {n}:") for n in range(10)]

    def reward(self, problem: Problem, completion: str) -> float:
        return sum(c in "aeiou" for c in completion) / max(len(completion), 1)


PLUGGED: list[tuple[dict[str, Any], Any, str]] = [
    (advantages.ALL, Advantage(median_centered), "advantage"),
    (credit.SOURCES, CreditSource(first_token, "all on the first token"), "credit"),
    (allocation.ALLOCATORS, Allocator("the last ones", "every one counts the same", picks=last_ones), "allocate"),
    (optimizer.OPTIMIZERS, OptimizerKind(adagrad, states=1), "optimizer"),
    (tasks.TASKS, Vowels, "task"),
]


@pytest.mark.parametrize(("table", "entry", "setting"), PLUGGED, ids=[setting for *_, setting in PLUGGED])
def test_an_entry_is_offered_and_trains(
    table: dict[str, Any], entry: Any, setting: str, policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table, "toy", entry)
    training = parser(["train"])._subparsers._group_actions[0].choices["train"]  # type: ignore[union-attr, index]
    offered = next(action for action in training._actions if action.dest == setting)
    assert "toy" in (offered.choices or ()) or "toy" in (offered.help or "")
    policy.model.save_pretrained(tmp_path / "model")
    policy.tokenizer.save_pretrained(tmp_path / "model")
    settings: dict[str, Any] = {"task": "arithmetic:size=20", "steps": 2, "prompts": 2, "group": 4, "max_tokens": 6}
    settings |= {"model": str(tmp_path / "model"), "out": str(tmp_path / "run"), "eval_problems": 0, "threads": 1}
    assert train(TrainConfig(**{**settings, setting: "toy"})).steps == 2
    assert read(tmp_path / "run").setting(setting) == "toy"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="unknown advantage 'best'; use one of none, centered"):
        check(TrainConfig(advantage="best"))


def test_an_advantage_replaces_that_of_the_recipe() -> None:
    assert TrainConfig(recipe="grpo", advantage="leave_one_out").objective(9).advantage is advantages.leave_one_out
    check(TrainConfig(recipe="grpo", advantage="whitened", group=1))
    with pytest.raises(UserError, match="a group of 1 leaves nothing to compare"):
        check(TrainConfig(recipe="reinforce", advantage="centered", group=1))
