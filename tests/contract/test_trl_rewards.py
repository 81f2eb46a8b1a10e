"""Advantages of several rewards are those of TRL's own aggregation, with rewards that are absent among them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grposcope.maths.aggregation import Aggregation, Components, Method, Scale, combine

pytest.importorskip("trl")
pytest.importorskip("datasets")

from small_trl import small_trainer

PROMPTS, GROUP = 4, 4
NAN = float("nan")
WEIGHTS = [1.0, 0.5, -0.25]
REWARDS = np.random.default_rng(0).random((PROMPTS * GROUP, 3)).astype(np.float32).astype(np.float64)
REWARDS[:4, 1] = 0.5  # constant in a group
REWARDS[9, 0] = NAN
REWARDS[12:16, 2] = NAN  # judged by nobody in this group
REWARDS[6] = NAN  # by none at all


def function(j: int) -> Callable[..., list[float | None]]:
    def reward(completions: list[str], **_: Any) -> list[float | None]:
        return [None if value != value else value for value in REWARDS[:, j].tolist()]

    reward.__name__ = f"r{j}"
    return reward


def completions(prompts: list[str], trainer: Any) -> dict[str, Any]:
    ids = [[3 + i % 9] for i in range(len(prompts))]
    return {
        "prompt_ids": [trainer.processing_class(p).input_ids for p in prompts],
        "completion_ids": ids,
        "logprobs": None,
    }


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place: Path = tmp_path_factory.mktemp("trl")
    return small_trainer(
        place, ["ab", "cdefa", "b", "ca"], [function(j) for j in range(3)], completions,
        per_device_train_batch_size=PROMPTS * GROUP, num_generations=GROUP, max_completion_length=10,
        reward_weights=WEIGHTS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "scale"),
    [("sum_then_normalize", "group"), ("sum_then_normalize", "batch"), ("sum_then_normalize", "none"),
     ("normalize_then_sum", "group"), ("normalize_then_sum", "none")],
)  # fmt: skip
def test_advantages_are_those_of_trl(trainer: Any, method: Method, scale: Scale) -> None:
    trainer.multi_objective_aggregation, trainer.scale_rewards = method, scale
    trainer.model.train()
    rows = [{"prompt": text} for text in ("ab", "cdefa", "b", "ca") for _ in range(GROUP)]
    theirs = trainer._generate_and_score_completions(rows)["advantages"]
    given = Components.of_groups(("r0", "r1", "r2"), REWARDS.reshape(PROMPTS, GROUP, 3))
    ours = torch.from_numpy(combine(given, WEIGHTS, Aggregation(method, scale)).advantages).float()
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-5)
    assert theirs.abs().max() > 0.2
    assert theirs[6] == 0
