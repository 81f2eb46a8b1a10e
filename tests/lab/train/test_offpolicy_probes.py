"""Probes of a run whose rollouts are of another policy: they measure the rollouts and the gradient of the update."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import config, rows
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.instruments.gradient import per_step, weightings
from grposcope.instruments.offpolicy import estimates, probe_file
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.train import loop
from grposcope.maths.corrections import ALL, named
from grposcope.maths.importance import Ratios


@dataclass
class Watched:
    """A run; of each step the model before it and the rollouts; and what each probe of the geometry was given."""

    folder: Path
    models: list[PreTrainedModel]
    rollouts: list[RolloutBatch]
    probed: list[tuple[RolloutBatch, dict[str, Any]]]

    def logp(self, version: int, step: int) -> Tensor:
        """log π of the rollouts of a step (from 1) under the weights after `version` steps, (B, T)."""
        return frozen_logprobs(self.models[version], self.rollouts[step - 1], 1.0, 4)


@pytest.fixture
def watched(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watched]:
    small = config(
        policy, tmp_path, steps=5, eval_problems=0, checkpoint_every=0, lr=3e-2, warmup=0, threads=1, probe_every=1,
        probe_prompts=3, optimizer="sgd", momentum=0.0, clip_grad=0.0, schedule="constant",
    )  # fmt: skip
    update, step_metrics = loop.update, per_step.step_metrics

    def go(**changes: Any) -> Watched:
        seen = Watched(tmp_path / "run", [], [], [])

        def watching(model: PreTrainedModel, optimizer: Any, objective: Any, batch: RolloutBatch, *rest: Any) -> Any:
            seen.models.append(copy.deepcopy(model))
            seen.rollouts.append(batch)
            return update(model, optimizer, objective, batch, *rest)

        def probing(model: Any, batch: RolloutBatch, recipe: Any, **more: Any) -> dict[str, float]:
            seen.probed.append((batch, {"recipe": recipe, **more}))
            return step_metrics(model, batch, recipe, **more)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "update", watching)
            patch.setattr(per_step, "step_metrics", probing)
            loop.train(replace(small, **{"out": str(seen.folder), **changes}))
        return seen

    return go


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"staleness": "2"}, {"staleness": "2", "correction": "sequence_cap:1.1"}, {"staleness": "2", "recipe": "gspo"}],
)
def test_the_geometry_is_of_the_gradient_that_the_update_takes(
    watched: Callable[..., Watched], changes: dict[str, Any]
) -> None:
    """Plain gradient steps: what the weights moved by, against Σ w ∇log π of the weights w that are probed."""
    run = watched(steps=3, **changes)
    batch, given = run.probed[1]
    w = weightings.of_recipe(given["recipe"], batch, given["credit"], log_ratio=given["log_ratio"]).weights
    model, after = run.models[1:]
    model.zero_grad()
    (_logp(model, batch) * w.float()).sum().backward()
    lr = rows(run.folder)[1]["lr"]
    moved = [(a - b).detach() / lr for a, b in zip(model.parameters(), after.parameters(), strict=True)]
    due = [p.grad for p in model.parameters()]
    size = float(torch.cat([one.flatten() for one in moved]).norm())
    off = float(torch.cat([(a - b).flatten() for a, b in zip(moved, due, strict=True)]).norm())
    assert size > 0
    assert off < 1e-3 * size
    assert rows(run.folder)[1]["geometry/baseline_gap"] == "NaN", "the best baseline is of the policy's own rollouts"
    assert rows(run.folder)[1]["geometry/layer_stable"] > 0


def _logp(model: PreTrainedModel, batch: RolloutBatch) -> Tensor:
    """log π (B, T) with a gradient."""
    ids, seen = torch.cat((batch.prompt_ids, batch.tokens), 1), torch.cat((batch.prompt_mask, batch.mask), 1)
    places = (seen.long().cumsum(-1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=seen.long(), position_ids=places).logits
    first = batch.prompt_ids.shape[1] - 1
    logp = logits[:, first:-1].log_softmax(-1).gather(-1, batch.tokens[..., None])[..., 0]
    return logp.where(batch.mask, 0.0)


def test_the_probe_of_a_stale_run_has_the_rollouts_of_the_update(watched: Callable[..., Watched]) -> None:
    run = watched(steps=4, staleness="2", correction="sequence_cap:1.1")
    probes = probe_file.in_folder(run.folder)
    assert [one.step for one in probes] == [1, 2, 3, 4]
    for one in probes:
        batch, lag = run.rollouts[one.step - 1], min(one.step - 1, 2)
        logs = (run.logp(one.step - 1, one.step) - run.logp(one.step - 1 - lag, one.step))[batch.mask].double().numpy()
        assert np.concatenate(one.rollouts.log_ratios) == pytest.approx(logs, abs=3e-5)
        assert (one.source, one.batch, one.shape) == ("sampler", 3, (3, 4))
        assert one.rollouts.lags is not None
        assert one.rollouts.lags.tolist() == [lag] * 12
    last, batch = probes[-1], run.rollouts[3]
    assert float(np.abs(np.concatenate(last.rollouts.log_ratios)).max()) > 0.02
    ratios = Ratios.of(last.rollouts.log_ratios, last.rollouts.centred, last.rollouts.sampler)
    every = [*(one for one in ALL if one.name != "prefix_ratio"), named("sequence_cap:1.1")]
    due = estimates.measure(run.models[3], batch, ratios, every)
    assert list(last.products) == [one.name for one in every]
    for name, one in due.products.items():
        assert last.products[name].own == pytest.approx(one.own, rel=1e-6, abs=1e-12)


def test_with_an_interval_the_last_use_of_a_batch_is_probed(watched: Callable[..., Watched]) -> None:
    run = watched(steps=3, interval=2, minibatches=1, probe_every=2)
    (one,) = probe_file.in_folder(run.folder)  # the batch of step 3 is not used a second time
    logs = (run.logp(1, 2) - run.logp(0, 2))[run.rollouts[1].mask].double().numpy()
    assert np.concatenate(one.rollouts.log_ratios) == pytest.approx(logs, abs=3e-5)
    assert (one.step, one.source) == (2, "earlier")
    assert one.rollouts.lags is not None
    assert one.rollouts.lags.tolist() == [1] * 12
    assert "seconds_probe" in rows(run.folder)[1]


def test_a_run_on_fresh_rollouts_has_none(watched: Callable[..., Watched]) -> None:
    assert not probe_file.in_folder(watched(steps=1).folder)
