"""The probe of a training step: the numbers of the whole probe by name, and what it says where there is nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from geometry_models import batch, build, one_by_one

from grposcope.core.metrics import METRICS
from grposcope.instruments.gradient import per_step, probe, spectrum
from grposcope.instruments.gradient.layers import _moved_in_bfloat16, measures
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_batch import RolloutBatch


@pytest.fixture(scope="module")
def model() -> Any:
    return build("llama")


@pytest.fixture(scope="module")
def rollouts() -> RolloutBatch:
    return batch(prompts=3, group=4)


def test_every_number_is_defined() -> None:
    assert set(per_step.NAMES) == {name for name in METRICS if name.startswith("geometry/")}


def test_numbers_are_those_of_the_gradients_themselves(model: Any, rollouts: RolloutBatch) -> None:
    """Against a backward pass per rollout, singular values by LAPACK, and the definitions."""
    few = rollouts.take(torch.tensor([0, 1]))
    got = per_step.step_metrics(model, rollouts, recipes.RLOO, prompts=2, learning_rate=1e-2)
    assert set(got) == set(per_step.NAMES)
    assert got["geometry/prompts"] == 2
    scores = one_by_one(model, few)
    rows = torch.stack([torch.cat([g.flatten() for g in one.values()]) for one in scores])
    assert got["geometry/score_norm"] == pytest.approx(float(rows.square().sum(1).mean().sqrt()))
    weights = recipes.RLOO.weights(torch.zeros(8, 5), torch.zeros(8, 5), few).sum(1) / few.lengths
    values = torch.linalg.svdvals(weights.double()[:, None] * rows).numpy()
    assert got["geometry/rollout_stable"] == pytest.approx(spectrum.ranks(values)["stable"], rel=1e-5)
    gradient = (weights.double()[:, None] * rows).sum(0)
    assert got["geometry/parameter_gini"] == pytest.approx(measures(gradient.abs())["gini"], rel=1e-6)
    assert got["geometry/parameter_below_0.01"] == pytest.approx(
        float((gradient.abs() < 0.01 * gradient.abs().max()).double().mean()), abs=1e-3
    )
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert got["geometry/parameter_visible_adam"] == pytest.approx(
        _moved_in_bfloat16(flat, 1e-2 * gradient.sign()), abs=1e-3
    )
    matrices = [n for n, p in model.named_parameters() if p.dim() == 2]
    stable = []
    for name in matrices:
        one = sum(w * s[name] for w, s in zip(weights.double(), scores, strict=True))
        stable.append(spectrum.ranks(torch.linalg.svdvals(one).numpy())["stable"])  # type: ignore[arg-type]
    assert got["geometry/layer_stable"] == pytest.approx(float(np.mean(stable)), rel=1e-4)
    assert got["geometry/self_check"] < 1e-9


def test_without_a_gradient_it_cannot_tell(model: Any, rollouts: RolloutBatch) -> None:
    equal = replace(rollouts, rewards=torch.ones(3, 4).double())
    got = per_step.step_metrics(model, equal, recipes.GRPO)
    assert got["geometry/dead"] == got["geometry/dead_predicted"] == 1
    assert got["geometry/prompts"] == 0
    assert all(math.isnan(got[name]) for name in per_step.NAMES[3:])
    assert math.isfinite(per_step.step_metrics(model, equal, recipes.REINFORCE)["geometry/layer_stable"])


def test_prompts_without_a_gradient_are_passed_over(model: Any, rollouts: RolloutBatch) -> None:
    rewards = rollouts.rewards.clone()
    rewards[0] = 1
    some = replace(rollouts, rewards=rewards)
    got = per_step.step_metrics(model, some, recipes.GRPO, prompts=1)
    alone = per_step.step_metrics(model, rollouts.take(torch.tensor([1])), recipes.GRPO)
    assert got["geometry/layer_stable"] == alone["geometry/layer_stable"]
    assert got["geometry/dead"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", recipes.ALL)
def test_every_recipe(model: Any, rollouts: RolloutBatch, name: str) -> None:
    got = per_step.step_metrics(model, rollouts, recipes.ALL[name].at_length(5), learning_rate=1e-3)
    assert all(math.isfinite(v) for v in got.values())


def test_credit_of_steps(model: Any, rollouts: RolloutBatch) -> None:
    equal = replace(rollouts, rewards=torch.ones(3, 4).double())
    got = per_step.step_metrics(model, equal, recipes.GRPO, credit="steps")
    assert got["geometry/prompts"] > 0
    assert math.isfinite(got["geometry/parameter_gini"])


def test_ctrl_c_leaves_the_probe(model: Any, rollouts: RolloutBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = probe.LayerMeasurements.keep_scores

    def stop(self: Any, measurement: Any) -> None:
        if self.layers:
            raise KeyboardInterrupt
        keep(self, measurement)

    monkeypatch.setattr(probe.LayerMeasurements, "keep_scores", stop)
    with pytest.raises(KeyboardInterrupt):
        per_step.step_metrics(model, rollouts, recipes.GRPO)
