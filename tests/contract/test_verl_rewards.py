"""GDPO as verl computes it, whitened over tokens, is ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from grposcope.maths.aggregation import Aggregation, Components, combine

pytest.importorskip("verl", reason="needs the extra verl: make test-verl")

from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos


@pytest.mark.parametrize("weights", [None, [1.0, 0.5]])
def test_advantages_are_those_of_verl(weights: list[float] | None) -> None:
    random = np.random.default_rng(0)
    prompts, group, width, before = 5, 4, 9, 3
    lengths = random.integers(1, width + 1, prompts * group)
    rewards = random.random((prompts * group, 2)).astype(np.float32)
    rewards[:group, 1] = 0.5
    mask = torch.arange(width) < torch.from_numpy(lengths)[:, None]
    attention = torch.cat([torch.ones(len(mask), before, dtype=torch.long), mask.long()], 1)
    batch: Any = {"prompts": torch.ones(len(mask), before, dtype=torch.long), "attention_mask": attention}
    config = AlgoConfig(adv_estimator="gdpo", gdpo_reward_keys=["right", "form"], gdpo_reward_weights=weights)
    theirs, _ = core_algos.compute_gdpo_outcome_advantage(
        torch.zeros(mask.shape), mask.long(), np.arange(prompts).repeat(group).astype(str), config=config,
        non_tensor_batch={"right": rewards[:, 0], "form": rewards[:, 1]}, batch=batch,
    )  # fmt: skip
    given = Components.of_groups(
        ("right", "form"), rewards.astype(np.float64).reshape(prompts, group, 2), lengths.astype(np.float64)
    )
    ours = combine(given, weights or [1.0, 1.0], Aggregation("gdpo_tokens", eps=1e-6)).advantages
    torch.testing.assert_close(theirs, torch.from_numpy(ours).float()[:, None] * mask, rtol=1e-5, atol=1e-5)
    assert np.abs(ours.reshape(prompts, group).sum(1)).max() > 0.1  # groups no longer sum to 0
