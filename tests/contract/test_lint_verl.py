"""What verl's own validation refuses, lint calls failing, over a grid of sizes. Needs verl (`make test-verl`)."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from grposcope.core.settings import Settings
from grposcope.faults.judge_settings import lint
from grposcope.instruments.lint.dialects import VERL

if find_spec("verl") is None:
    pytest.skip("needs verl, which has an environment of its own: make test-verl", allow_module_level=True)

ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
SIZES = {
    "data.train_batch_size": (8, 24),
    ACTOR + "ppo_mini_batch_size": (8, 16),
    ROLLOUT + "n": (1, 5),
    "trainer.n_gpus_per_node": (1, 7, 8),
    ACTOR + "ppo_micro_batch_size_per_gpu": (None, 2),
    ACTOR + "use_dynamic_bsz": (False, True),
}
SIZES_AMISS = ("indivisible batches", "indivisible gpus", "refused settings")
LATER = ("the first update fails", "of a replica", "of one replica")
"""What fails after the validation, in words of the findings."""


def defaults() -> object:
    """verl's composed defaults, with what has no default."""
    import verl
    from omegaconf import OmegaConf

    config = OmegaConf.load(Path(verl.__file__).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml")
    OmegaConf.update(config, ROLLOUT + "name", "vllm")
    OmegaConf.update(config, ROLLOUT + "log_prob_micro_batch_size_per_gpu", 1)
    OmegaConf.update(config, "actor_rollout_ref.model.path", "none")
    return config


def test_batches_are_refused_where_verl_refuses_them() -> None:
    from omegaconf import OmegaConf
    from verl.utils.config import validate_config

    refused = 0
    for values in product(*SIZES.values()):
        given = {"algorithm.adv_estimator": "grpo", ROLLOUT + "tensor_model_parallel_size": 1}
        given |= {key: value for key, value in zip(SIZES, values, strict=True) if value is not None}
        config = defaults()
        for key, value in given.items():
            OmegaConf.update(config, key, value)
        try:
            validate_config(config, use_reference_policy=False, use_critic=False)
            refuses = False
        except Exception:  # hydra wraps what it raises
            refuses = True
        findings = lint(Settings(Path("run.sh"), "a script", VERL, given))
        failing = [one.because for one in findings if one.grade == "failing" and one.fault in SIZES_AMISS]
        at_once = [why for why in failing if not any(word in why for word in LATER)]
        assert bool(at_once) is refuses, (given, failing)
        refused += refuses
    assert refused


def test_defaults_are_those_of_verl() -> None:
    from omegaconf import OmegaConf

    config = defaults()
    for key, value in VERL.defaults.items():
        assert OmegaConf.select(config, key) == value, key
