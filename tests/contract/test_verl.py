"""Our estimators in verl's registry, through its own `compute_advantage`; equal to its own where they are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from grposcope.engines.verl.estimators import all_estimators
from grposcope.lab.objectives import advantages

pytest.importorskip("verl", reason="needs the extra verl: make test-verl")

from verl import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import compute_advantage

UID = np.array(list("abcbacabcacb"), dtype=object)
"""Three groups of four."""
RAGGED = np.array(list("abcbacabcdcb"), dtype=object)
"""Groups of 3, 4, 4 and 1."""


def data(uid: np.ndarray = UID, seed: int = 0) -> DataProto:
    """A batch as verl has it before advantages: rewards on last tokens, and a group of equal rewards."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 8, (len(uid),), generator=random)
    rewards = torch.zeros(len(uid), 7)
    rewards[torch.arange(len(uid)), lengths - 1] = torch.rand(len(uid), generator=random).where(
        torch.from_numpy(uid != "c"), 1.0
    )
    tensors = {"token_level_rewards": rewards, "response_mask": (torch.arange(7) < lengths[:, None]).long()}
    return DataProto.from_dict(tensors=tensors, non_tensors={"uid": uid})


def through_verl(name: str, batch: DataProto, **settings: Any) -> Tensor:
    """The advantages that verl's `compute_advantage` puts into the batch."""
    return compute_advantage(batch, name, config=AlgoConfig(adv_estimator=name), **settings).batch["advantages"]


def test_import_verl_is_enough() -> None:
    """The entry point is found without any variable, and the named module too; neither with plugins turned off."""
    for variables, there in (
        ({}, True),
        ({"VERL_USE_EXTERNAL_PLUGINS": "none"}, False),
        ({"VERL_USE_EXTERNAL_PLUGINS": "none", "VERL_USE_EXTERNAL_MODULES": "grposcope.engines.verl"}, True),
    ):
        code = "import verl.trainer.ppo.core_algos as c; print('grposcope_steps' in c.ADV_ESTIMATOR_REGISTRY)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **variables}
        )
        assert done.stdout.split()[-1:] == [str(there)], done.stderr


@pytest.mark.parametrize("name", all_estimators())
def test_verl_calls_ours(name: str) -> None:
    batch = data()
    given = through_verl(name, batch)
    again = all_estimators()[name](batch.batch["token_level_rewards"], batch.batch["response_mask"], UID)
    assert torch.equal(given, again[0])
    assert torch.equal(batch.batch["returns"], again[1])
    assert bool((given.abs().sum(-1) > 0).any())
    if name in ("grposcope_standardized", "grposcope_leave_one_out", "grposcope_centered"):
        assert not given[torch.from_numpy(UID == "c")].any()  # exactly 0, equal rewards


def test_standardized_is_grpo_of_verl() -> None:
    """With the same ε."""
    batch = data()
    arguments = batch.batch["token_level_rewards"], batch.batch["response_mask"], UID
    theirs = core_algos.compute_grpo_outcome_advantage(*arguments, epsilon=1e-4)[0]
    torch.testing.assert_close(through_verl("grposcope_standardized", batch), theirs, rtol=1e-4, atol=2e-4)
    live = torch.from_numpy(UID != "c")  # of equal rewards verl's are rounding errors over ε
    torch.testing.assert_close(batch.batch["advantages"][live], theirs[live], rtol=1e-5, atol=1e-6)
    default = through_verl("grpo", data())
    torch.testing.assert_close(default[live], theirs[live], rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("ours", "theirs", "settings"),
    [
        ("grposcope_leave_one_out", "rloo", {}),
        ("grposcope_leave_one_out", "rloo_vectorized", {}),
        ("grposcope_centered", "grpo", {"norm_adv_by_std_in_grpo": False}),
    ],
)
def test_the_same_formula_gives_the_same_numbers(ours: str, theirs: str, settings: dict[str, Any]) -> None:
    for uid in (UID, RAGGED):
        several = torch.tensor([(uid == u).sum() > 1 for u in uid])
        expected = through_verl(theirs, data(uid), **settings)[several]
        torch.testing.assert_close(through_verl(ours, data(uid))[several], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("theirs", ["grpo", "rloo", "opo", "gpg"])
def test_a_single_rollout_has_its_reward_as_advantage_in_verl_and_zero_here(theirs: str) -> None:
    batch = data(RAGGED)
    alone = int(np.flatnonzero(RAGGED == "d")[0])
    reward = float(batch.batch["token_level_rewards"][alone].sum())
    if theirs != "gpg":  # which is scaled by the batch
        assert float(through_verl(theirs, data(RAGGED))[alone, 0]) == pytest.approx(reward, rel=1e-5)
    assert float(through_verl(theirs, data(RAGGED))[alone, 0]) != 0
    for name, advantage in advantages.ALL.items():
        if advantage.needs_group:
            assert not through_verl(f"grposcope_{name}", data(RAGGED))[alone].any()


def test_outcomes_alone_make_steps_leave_one_out() -> None:
    torch.testing.assert_close(through_verl("grposcope_steps", data()), through_verl("rloo", data()))
