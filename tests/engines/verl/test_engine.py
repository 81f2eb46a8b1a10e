"""verl's FSDP2 engine descends the gradient of our objectives, recipe by recipe, inside an actor of Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from places import TESTS
from torch import Tensor

from grposcope.core.capabilities import _refusal
from grposcope.engines.verl.estimators import MARK, PREFIX, all_estimators, steps_credit
from grposcope.engines.verl.overrides import ACTOR, ENGINE, _overrides
from grposcope.lab.objectives import Objective, ratios, recipes
from grposcope.lab.policies.load import Policy, encode, load
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.logprobs import token_logprobs

pytest.importorskip("verl", reason="needs the extra verl: make test-verl")
import ray

from engines.verl.actor import TEMPERATURE, Bench

PROMPTS, GROUP, LIMIT = ["8+5-4=", "30-7+2=", "61+9-3="], 4, 9
LENGTHS = [9, 2, 5, 4, 5, 9, 1, 3, 7, 8, 6, 9]
UID = np.repeat(np.array(["a", "b", "c"], dtype=object), GROUP)

RUNTIME = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "engines.verl.cpu,grposcope.engines.verl",
    "VERL_USE_EXTERNAL_PLUGINS": "none",
    "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS / "helpers"), os.environ.get("PYTHONPATH", "")]),
    "OMP_NUM_THREADS": "1",
    "MASTER_ADDR": "127.0.0.1",
    "RANK": "0",
    "WORLD_SIZE": "1",
}


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """An actor with verl's engine; UserError and the like come back from it as they are."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        yield ray.remote(Bench).options(runtime_env={"env_vars": {**RUNTIME, "MASTER_PORT": "29517"}}).remote()
    finally:
        ray.shutdown()


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load("tiny")


@pytest.fixture(scope="module")
def rollouts(policy: Policy) -> RolloutBatch:
    """Three groups of four: rewards of the outcome, one group of which is of one mind, and rewards of steps."""
    random = torch.Generator().manual_seed(0)
    ids, kept = encode(policy, PROMPTS)
    mask = torch.arange(LIMIT) < torch.tensor(LENGTHS)[:, None]
    tokens = torch.randint(3, 99, mask.shape, generator=random) * mask
    ends = (torch.rand(mask.shape, generator=random) < 0.4) & mask
    rewards = torch.rand(len(PROMPTS), GROUP, generator=random).double()
    rewards[1] = 1
    filled = RolloutBatch(
        prompt_ids=ids.repeat_interleave(GROUP, 0),
        prompt_mask=kept.repeat_interleave(GROUP, 0),
        tokens=tokens,
        mask=mask,
        logp=torch.zeros(mask.shape),
        entropy=torch.zeros(mask.shape),
        truncated=torch.zeros(len(mask), dtype=torch.bool),
        rewards=rewards,
        token_annotations={
            "step_rewards": torch.randint(0, 2, mask.shape, generator=random).double() * ends,
            "step_ends": ends,
        },
    )
    with torch.no_grad():
        logp = token_logprobs(policy.model, filled, torch.arange(len(mask)), TEMPERATURE)[0]
    return replace(filled, logp=logp)


@pytest.fixture(scope="module")
def old(rollouts: RolloutBatch) -> Tensor:
    """Log-probabilities of a policy some way off, so that every clip holds some tokens and not others."""
    noise = torch.randn(rollouts.mask.shape, generator=torch.Generator().manual_seed(2))
    return (rollouts.logp + 0.4 * noise) * rollouts.mask


def ours(
    policy: Policy, rollouts: RolloutBatch, old: Tensor, objective: Objective, given: Tensor, names: list[str]
) -> Any:
    logp, entropy = token_logprobs(
        policy.model, rollouts, torch.arange(len(LENGTHS)), TEMPERATURE, entropy=bool(objective.entropy)
    )
    policy.model.zero_grad()
    loss = objective.loss(logp, old, rollouts, credit=given, logp_ref=old, entropy=entropy)
    loss.backward()
    parameters = dict(policy.model.named_parameters())
    return float(loss), torch.cat([parameters[name].grad.reshape(-1) for name in names]).numpy()


def on_last(rollouts: RolloutBatch) -> np.ndarray:
    """Outcome rewards as verl holds them, (B, T)."""
    rewards = torch.zeros(rollouts.mask.shape)
    rewards[torch.arange(len(LENGTHS)), rollouts.lengths - 1] = rollouts.rewards.reshape(-1).float()
    return rewards.numpy()


def test_the_actor_has_our_estimators_and_the_sharded_engine(bench: Any) -> None:
    assert set(all_estimators()) <= set(ray.get(bench.estimators.remote()))
    assert ray.get(bench.engine.remote()) == ("FSDPEngineWithLMHead", "FSDPLlamaForCausalLM", "DTensor")


def test_log_probabilities_are_ours(bench: Any, rollouts: RolloutBatch) -> None:
    theirs = ray.get(bench.log_probs.remote(rollouts))
    np.testing.assert_allclose(theirs, rollouts.logp.numpy(), rtol=1e-5, atol=2e-5)


VARIANTS = {
    **{
        name: (objective, None)
        for name, objective in recipes.ALL.items()
        if name not in recipes.DEFAULT_SETTINGS and not _refusal(ENGINE, objective.part())
    },
    "kl": (replace(recipes.GRPO, name="kl", kl=0.3), None),
    "entropy": (replace(recipes.DAPO, name="entropy", entropy=0.2), None),
    "steps": (recipes.RLOO, "steps"),
    "process": (recipes.DAPO, "process"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_gradient_is_that_of_our_objective(
    name: str, bench: Any, policy: Policy, rollouts: RolloutBatch, old: Tensor
) -> None:
    objective, credit = VARIANTS[name]
    objective = objective.at_length(LIMIT)
    told = _overrides(objective, LIMIT)
    estimator = told["algorithm.adv_estimator"]
    rewards = on_last(rollouts)
    if credit:
        estimator = PREFIX + credit
        of_steps, ends = (rollouts.token_annotations[name] for name in ("step_rewards", "step_ends"))
        rewards = of_steps.where(~ends | (of_steps != 0), MARK).float().numpy()
        given = steps_credit()[credit](of_steps, ends, rollouts.mask, GROUP).float()
    else:
        given = objective.token_advantages(rollouts)
    theirs = ray.get(bench.advantages.remote(estimator, rewards, rollouts.mask.numpy(), UID))
    np.testing.assert_allclose(theirs, given.numpy(), rtol=1e-5, atol=1e-6)
    actor = {path.removeprefix(ACTOR): value for path, value in told.items() if path.startswith(ACTOR)}
    tensors = {"advantages": theirs, "old_log_probs": old.numpy(), "ref_log_prob": old.numpy()}
    their_loss, their_gradient = ray.get(bench.gradient.remote(rollouts, actor, **tensors))
    loss, gradient = ours(policy, rollouts, old, objective, given, ray.get(bench.names.remote()))
    assert np.abs(their_gradient).max() > 1e-3
    error = np.linalg.norm(gradient - their_gradient) / np.linalg.norm(gradient)
    print(f"{name:12} loss {loss:+.6f} {their_loss:+.6f}  relative error of the gradient {error:.1e}")
    assert error < 1e-5
    if objective.ratio is not ratios.none:  # −A log π there, −A ρ here, ρ = 1: only the gradients are alike
        assert their_loss == pytest.approx(loss, rel=1e-4, abs=1e-5)
