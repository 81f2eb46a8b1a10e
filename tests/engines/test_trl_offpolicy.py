"""GRPOscopeTrainer's probes of rollouts that another policy drew: earlier weights, or another sampler."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("datasets")

from asked import asked

from engines import tiny_trl
from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.engines.trl import offpolicy as module
from grposcope.instruments.offpolicy import probe_file
from grposcope.lab.sampling.accumulate import frozen_logprobs

SIZE = {"per_device_train_batch_size": 16, "num_generations": 4, "max_completion_length": 6, "learning_rate": 3e-2}


class Watching(GRPOscopeTrainer):
    """Keeps the weights that draw each batch."""

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        self.models = [*getattr(self, "models", []), copy.deepcopy(self.model)]
        return super()._generate_and_score_completions(inputs)


def test_a_batch_of_several_steps_is_measured_before_its_last(tmp_path: Path) -> None:
    """π of the probe, by the log ratios, is the policy before the last step that the batch is used for."""
    trainer = tiny_trl.trainer(
        tmp_path, [], kind=Watching, ours={"probe_every": 1, "probe_prompts": 3},
        **{**SIZE, "num_iterations": 2, "max_steps": 4},
    )  # fmt: skip
    seen: list[Any] = []
    measure = module.OffPolicyProbes._measure

    def spy(self: Any, step: int, rollouts: Any, source: Any) -> None:
        seen.append((step, rollouts, copy.deepcopy(trainer.model)))
        measure(self, step, rollouts, source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.OffPolicyProbes, "_measure", spy)
        trainer.train()
    probes = probe_file.in_folder(tmp_path)
    assert [(one.step, one.source, one.batch, one.shape) for one in probes] == [
        (2, "earlier", 4, (3, 4)), (4, "earlier", 4, (3, 4))
    ]  # fmt: skip
    for one, (step, rollouts, model), drew in zip(probes, seen, trainer.models, strict=True):
        assert step == one.step
        with torch.no_grad():
            now, then = (frozen_logprobs(m.eval(), rollouts, 1.0, 4) for m in (model, drew))
        logs = np.concatenate(one.rollouts.log_ratios)
        assert float(np.abs(logs).max()) > 0.01
        assert logs == pytest.approx((now - then)[rollouts.mask].double().numpy(), abs=1e-4)
        assert one.rollouts.lags is not None
        assert one.rollouts.lags.tolist() == [1.0] * 12
    _, document = asked("offpolicy", tmp_path)
    assert document["pooled"]["source"] == "earlier"
    assert len(document["pooled"]["steps"]) == 2


def test_the_probabilities_of_vllm_are_those_of_the_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = tiny_trl.trainer(
        tmp_path, [], kind=GRPOscopeTrainer, ours={"probe_every": 1, "probe_prompts": 3}, **{**SIZE, "max_steps": 2}
    )
    fresh = module.OffPolicyProbes.fresh

    def with_sampler(self: Any, step: int, every: Any, out: Any) -> None:
        logp = frozen_logprobs(trainer.model, every, 1.0, 4)
        trainer.model.train()
        fresh(self, step, every, {**out, "sampling_per_token_logps": logp - 0.1})

    monkeypatch.setattr(module.OffPolicyProbes, "fresh", with_sampler)
    trainer.train()
    probes = probe_file.in_folder(tmp_path)
    assert [(one.step, one.source) for one in probes] == [(1, "sampler"), (2, "sampler")]
    for one in probes:
        assert np.concatenate(one.rollouts.log_ratios) == pytest.approx(0.1, abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "sequence_mask:3"),
        ({"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 2.0}, "token_cap:2"),
        ({"vllm_importance_sampling_clip_min": 0.5}, None),
        ({"vllm_importance_sampling_correction": False}, None),
    ],
)
def test_the_correction_of_trl_has_a_name(tmp_path: Path, changes: dict[str, Any], name: str | None) -> None:
    from trl import GRPOConfig

    args = GRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **changes)
    found = module._own(args)
    assert (None if found is None else found.name) == name
