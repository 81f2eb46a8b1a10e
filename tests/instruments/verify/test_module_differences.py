"""Which of the trainer's tensors the sampler has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.instruments.verify import module_differences
from grposcope.lab import policies
from grposcope.signs.rollouts.claims import weights_at_the_sampler
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import was_tested

NAMES = ("model.embed_tokens.weight", "lm_head.weight", "model.layers.0.self_attn.q_proj.weight",
         "model.layers.0.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight")  # fmt: skip


def weights(seed: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(4, 4, generator=random) for name in NAMES}


def test_kinds() -> None:
    assert [module_differences._kind_of(name) for name in NAMES] == ["embedding", "head", "attention", "mlp", "norm"]


def test_equal_weights_have_arrived_also_in_a_narrower_format() -> None:
    trainer, earlier = weights(0), weights(1)
    for sampler in (trainer, {name: one.bfloat16() for name, one in trainer.items()}):
        found = module_differences.compare(trainer, sampler, earlier)
        assert sum(one.equal for one in found) == sum(one.moved for one in found) == 5
    (test,) = weights_at_the_sampler.PROOF.check(PipelineEvidence("x", arrived=found))
    assert was_tested(test)
    assert not test.present
    assert "training moved 5 of them" in test.because


def test_what_did_not_arrive_is_named() -> None:
    trainer, earlier = weights(0), weights(1)
    sampler = {**trainer, NAMES[2]: earlier[NAMES[2]]}
    found = {one.kind: one for one in module_differences.compare(trainer, sampler, earlier)}
    assert (found["attention"].equal, found["attention"].earlier, found["attention"].first) == (0, 1, NAMES[2])
    assert found["mlp"].equal == 1
    (test,) = weights_at_the_sampler.PROOF.check(PipelineEvidence("x", arrived=tuple(found.values())))
    assert was_tested(test)
    assert test.present
    assert (test.fault, test.brief) == ("weights never arrived", "attention not arrived")
    assert "from before training" in test.because
    assert "Merge" in test.remedy


def test_merging_may_round_but_not_halve() -> None:
    trainer, earlier = weights(0), weights(1)
    for part, here in ((0.999, 5), (0.5, 0)):
        sampler = {name: earlier[name] + part * (trainer[name] - earlier[name]) for name in NAMES}
        assert sum(one.equal for one in module_differences.compare(trainer, sampler, earlier)) == here


def test_nothing_given_and_nothing_in_common() -> None:
    (found,) = weights_at_the_sampler.PROOF.check(PipelineEvidence("x"))
    assert not was_tested(found)
    with pytest.raises(UserError, match="no tensor in common"):
        module_differences.compare(weights(0), {"other": torch.zeros(2)})


def test_adapters_are_merged_into_what_they_adapt() -> None:
    peft = pytest.importorskip("peft")
    base = policies.load("tiny")
    plain = {name: one.clone() for name, one in module_differences.weights_of(base).items()}
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    wrapped = peft.get_peft_model(base.model, config)
    with_adapters = module_differences.weights_of(replace(base, model=wrapped.get_base_model()))
    merged = wrapped.merge_and_unload()
    expected = module_differences.weights_of(replace(base, model=merged))
    assert with_adapters.keys() == expected.keys() == plain.keys()
    moved = [name for name in plain if not torch.equal(plain[name], expected[name])]
    assert moved
    assert all("q_proj" in name for name in moved)
    assert all(torch.allclose(with_adapters[name], expected[name], atol=1e-6) for name in plain)
