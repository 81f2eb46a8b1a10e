"""A new advantage, credit, allocator, optimiser or task is one entry of a dict: `train --help` has it and it trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from grposcope.cli import parser
from grposcope.core.errors import UserError
from grposcope.core.flag import flags_of
from grposcope.lab import allocation, credit, tasks
from grposcope.lab.allocation import Allocator, picks
from grposcope.lab.allocation.picks import AllocationPlan, CandidateProblems, Values
from grposcope.lab.credit import CreditSource
from grposcope.lab.objectives import Objective, advantages
from grposcope.lab.objectives.advantages import Advantage
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.tasks import Problem, Task
from grposcope.lab.train import command, optimizer
from grposcope.lab.train.config import TrainConfig, _option, _same, check
from grposcope.lab.train.loop import train
from grposcope.logs import read


def median_centered(rewards: Tensor) -> Tensor:
    return rewards - rewards.median(-1, keepdim=True).values


def first_token(objective: Objective, rollouts: RolloutBatch) -> Tensor:
    return objective.token_advantages(rollouts) * (torch.arange(rollouts.mask.shape[1]) == 0)


def last_ones(candidates: CandidateProblems, values: Values) -> AllocationPlan:
    which = np.arange(len(candidates.random))[-candidates.prompts :]
    return picks._picked(candidates, which, len(candidates.random))


def adagrad(parameters: list, lr: float, settings: TrainConfig) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=lr, weight_decay=settings.weight_decay)


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
    (optimizer.OPTIMIZERS, (adagrad, 1), "optimizer"),
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


@dataclass(frozen=True)
class Toys(TrainConfig):
    """The settings of a run and one more, which is one field."""

    toys: float = _option(0.5, "how many toys", group="batch", least=0, trl=_same("repetition_penalty"))


@dataclass(frozen=True)
class ToyFlags(command.Flags):
    """The flags of `train` with one more."""

    settings: Toys = flags_of(Toys, unset=True)  # noqa: RUF009


def test_a_flag_is_one_field(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The flag, its help and its limit, the record, and the argument of TRL that follows it, all from the field."""
    monkeypatch.setattr(command, "Flags", ToyFlags)
    training = parser(["train"])._subparsers._group_actions[0].choices["train"]  # type: ignore[union-attr, index]
    assert training.parse_args(["--toys", "0.25"]).toys == 0.25
    assert "how many toys (default: 0.5)" in " ".join(training.format_help().split())
    with pytest.raises(UserError, match="toys is -1; it must be at least 0"):
        check(Toys(toys=-1))
    assert asdict(Toys(toys=0.25))["toys"] == 0.25
    arguments = pytest.importorskip("grposcope.engines.trl.arguments")
    assert arguments.run_arguments(Toys(toys=0.25), 1e-3, True)["repetition_penalty"] == 0.25
    arguments.refuse_without_counterpart(Toys(toys=0.25))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="unknown advantage 'best'; use one of none, centered"):
        check(TrainConfig(advantage="best"))


def test_an_advantage_replaces_that_of_the_recipe() -> None:
    assert TrainConfig(recipe="grpo", advantage="leave_one_out").objective(9).advantage is advantages.leave_one_out
    check(TrainConfig(recipe="grpo", advantage="whitened", group=1))
    with pytest.raises(UserError, match="groups of 2 or more rollouts to compare, and a group of 1 has nothing"):
        check(TrainConfig(recipe="reinforce", advantage="centered", group=1))
