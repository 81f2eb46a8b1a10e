"""Folders of PEFT adapters: base and adapters together, of which the adapters alone can be trained and measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.instruments.gradient.probe import probe
from grposcope.lab import policies
from grposcope.lab.objectives import recipes
from grposcope.lab.policies.load import TINY
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic

peft = pytest.importorskip("peft", reason="adapters need peft")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Adapters of rank 2 on `tiny`, neither of whose matrices is zero."""
    place = tmp_path_factory.mktemp("adapters") / "checkpoint-3"
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    torch.manual_seed(0)
    model = peft.get_peft_model(policies.load(str(TINY)).model, config)
    model.save_pretrained(place)
    return place


def test_logits_are_those_of_the_adapted_model(folder: Path) -> None:
    policy = policies.load(str(folder))
    ids = torch.arange(3, 9)[None]
    expected = peft.PeftModel.from_pretrained(policies.load("tiny").model, str(folder))(ids).logits
    torch.testing.assert_close(policy.model(ids).logits, expected)
    assert not torch.allclose(expected, policies.load("tiny").model(ids).logits, atol=1e-2)
    assert policy.tokenizer.get_vocab() == policies.load("tiny").tokenizer.get_vocab()


def test_a_probe_measures_the_adapters_alone(folder: Path) -> None:
    policy = policies.load(str(folder))
    task = Arithmetic()
    batch = collect(policy, task, task.problems("train"), recipes.GRPO, Sampling(8), (4, 4), 0, 0)
    rewards = torch.arange(16.0, dtype=torch.float64).reshape(4, 4) % 3
    measured = probe(policy.model, replace(batch.rollouts, rewards=rewards), recipes.RLOO)
    assert {layer.name.split(".")[-3] for layer in measured.layers} == {"lora_A", "lora_B"}
    assert len(measured.layers) == 2 * 2 * 4
    assert measured.error < 1e-4


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (None, "does not name the base model of these adapters"),
        ("/no/such/model", "the base model /no/such/model is not here; copy it there"),
    ],
)
def test_adapters_whose_base_is_not_here(folder: Path, tmp_path: Path, base: str | None, said: str) -> None:
    config = json.loads((folder / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": base}))
    with pytest.raises(UserError, match=said):
        policies.load(str(tmp_path))
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        policies.load(str(tmp_path))


def test_pickled_adapters_are_not_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_bytes((folder / "adapter_config.json").read_bytes())
    (tmp_path / "adapter_model.bin").write_bytes(b"pickle")
    with pytest.raises(UserError, match=r"has no adapter_model\.safetensors"):
        policies.load(str(tmp_path))
