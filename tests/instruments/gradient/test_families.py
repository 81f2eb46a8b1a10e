"""Families of models against autograd, the table of benchmarks/families.md, and faults that the self-check must see."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

import families
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import backward, experts, gram, hooks, probe, without_hook
from grposcope.instruments.gradient.layers import _in_torch, _without_rollouts
from grposcope.instruments.gradient.score import Score
from grposcope.lab.objectives import recipes

QUICK = ["mixtral, one by one", "gpt_oss", "mamba"]
REFUSED = {"rwkv", "recurrent_gemma"}
ROUGH = {"jamba", "qwen3_next"}
"""Hybrids with experts, whose routing differs most under rounding."""


def skip_unless_possible(name: str) -> None:
    if not families.installed(name):
        pytest.skip(f"{families.FAMILIES[name].needs} is not installed")
    try:
        families.AutoConfig.for_model(families.FAMILIES[name].kind)
    except ValueError:
        pytest.skip("this transformers does not have the family")


def skip_without_stacks(model: Any) -> None:
    if not any(experts.is_stack(module) for module in model.modules()):
        pytest.skip("this transformers keeps the experts of Mixtral as layers of their own")


@pytest.mark.parametrize("name", QUICK)
def test_some_families_are_exact(name: str) -> None:
    skip_unless_possible(name)
    assert families.measure(name, half=False).exact


@pytest.mark.slow
@pytest.mark.parametrize("name", families.FAMILIES)
def test_every_family_is_exact_or_refused_and_the_page_says_so(name: str) -> None:
    skip_unless_possible(name)
    row = families.measure(name)
    if name in REFUSED:
        assert "padding changes the log-probabilities of this model" in row.refused
    else:
        assert row.exact
        assert row.half < (0.5 if name in ROUGH else families.HALF)
    written = families.PAGE.read_text()
    if f"transformers {families.transformers.__version__}," in written:
        line = next(line for line in written.splitlines() if line.startswith(f"| {name} |"))
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert [re.sub(r"by [\d.e+-]+", "", cell) for cell in cells[:6]] == [
            re.sub(r"by [\d.e+-]+", "", cell) for cell in row.cells()[:6]
        ]


def test_the_page_has_every_family() -> None:
    written = families.PAGE.read_text()
    assert written.startswith(families.HEADER)
    assert re.findall(r"^\| ([^|]+?) \|", written.removeprefix(families.HEADER), re.M) == list(families.FAMILIES)


# What the probe makes of them


@pytest.mark.parametrize("name", ["mixtral", pytest.param("qwen2, biases only", marks=pytest.mark.slow)])
def test_a_probe_has_the_same_gram_matrix(name: str) -> None:
    model, rollouts = families.build(name), families.batch()
    measured = probe.probe(model, rollouts, recipes.GRPO, also=[recipes.DAPO], learning_rate=1e-3)
    gradients = families.by_autograd(model, rollouts)
    wanted = sum((g @ g.mT).numpy() for g in gradients.values())
    np.testing.assert_allclose(measured.gram, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    weights = measured.weightings["grpo"].per_rollout
    assert weights is not None
    total = torch.cat([weights.double() @ g for g in gradients.values()])
    hoyer = (len(total) ** 0.5 - float(total.abs().sum() / total.norm())) / (len(total) ** 0.5 - 1)
    assert measured.parameters["hoyer"].value == pytest.approx(hoyer, rel=1e-4)
    assert measured.parameters["visible_adam"].n == len(total)
    assert measured.left_out == ()


def test_experts_sampled_entries_stand_beside_their_weights() -> None:
    """With a step equal to the weights, every kept entry that moves is told from the weight at its own place."""
    model, rollouts = families.build("mixtral"), families.batch()
    measured = probe.probe(model, rollouts, recipes.GRPO, learning_rate=0.05)
    gradients = families.by_autograd(model, rollouts)
    weights = measured.weightings["grpo"].per_rollout
    assert weights is not None
    moved = []
    for name, parameter in model.named_parameters():
        step = 0.05 * (weights.double() @ gradients[name]).sign().reshape(parameter.shape)
        before = parameter.detach().to(torch.bfloat16)
        moved.append(((before.float() - step.float()).to(torch.bfloat16) != before).flatten())
    assert measured.parameters["visible_adam"].value == pytest.approx(float(torch.cat(moved).double().mean()), abs=2e-3)


def test_both_contractions_of_an_expert_agree() -> None:
    torch.manual_seed(0)
    random = partial(torch.randn, dtype=torch.float64)
    routed = experts.Routed(torch.tensor([2, 0, 2, 2, 0]), torch.tensor([0, 1, 1, 0, 2]), random(5, 3), random(5, 4))
    whole = torch.zeros(3, 3, 3, 4, dtype=torch.float64)
    for e, i, b, a in zip(routed.experts, routed.rollouts, routed.rows, routed.columns, strict=True):
        whole[i, e] += torch.outer(b, a)
    weights = torch.randn(2, 3, dtype=torch.float64)
    for expert, score in enumerate(experts.scores("w", [routed], (3, 3, 4), 3)):
        own = whole[:, expert]
        torch.testing.assert_close(score.dense(), own)
        flat = own.flatten(1).double()
        for way in (_without_rollouts, _in_torch):
            gradients, products, norms = way(score, weights, 0, with_gram=True)
            wanted = torch.einsum("kb,brc->krc", weights, own.double())
            torch.testing.assert_close(gradients.double(), wanted)
            torch.testing.assert_close(products, flat @ flat.mT)
            assert norms is not None
            assert norms.norm == pytest.approx(float(gradients[0].norm()))


# What is measured apart


def test_what_is_apart_is_shared_out_over_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_hook.groups({"a": 10, "b": 20}, 4) == ([["a", "b"]], [])
    monkeypatch.setattr(without_hook, "HELD", 4 * 4 * 20)
    assert without_hook.groups({"a": 10, "b": 20, "c": 21}, 4) == ([["a"], ["b"]], ["c"])
    monkeypatch.setattr(without_hook, "PASSES", 1)
    assert without_hook.groups({"a": 10, "b": 20}, 4) == ([["a"]], ["b"])


def test_what_is_too_large_is_left_out_with_its_share_of_the_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rollouts = families.build("mamba"), families.batch()
    largest = max(p.numel() for n, p in model.named_parameters() if "A_log" in n or "conv1d" in n)
    monkeypatch.setattr(without_hook, "HELD", 4 * 6 * largest - 1)
    found, attached = families.grams(model, rollouts)
    assert attached.left_out
    assert not set(attached.left_out) & set(found)
    assert 0 < attached.share_left_out < 0.5
    assert 0 < attached.energy_left_out < 0.5


def test_gradients_that_waited_in_the_model_still_wait() -> None:
    model, rollouts = families.build("mamba"), families.batch()
    conv = model.backbone.layers[0].mixer.conv1d.weight
    conv.grad = torch.ones_like(conv)
    families.grams(model, rollouts)
    assert bool((conv.grad == 1).all())
    assert all(p.grad is None for p in model.parameters() if p is not conv)
    assert all(p.requires_grad for p in model.parameters())


# Faults that the self-check must notice


def broken_embedding(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The look-up reports nine tenths of its gradient."""
    own = hooks.Use
    monkeypatch.setattr(hooks, "Use", lambda rows, columns, padding=-1: own(rows, columns * 0.9, padding))
    return families.build("gemma")


def broken_norm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gradients of the copies of a norm's weights are too large by a tenth."""
    own = hooks._Collector.vector
    monkeypatch.setattr(hooks._Collector, "vector", lambda self, name, gradient: own(self, name, 1.1 * gradient))
    return families.build("gemma")


def broken_forward_of_a_norm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A norm that does something else with copies of its weights, as a model with code of its own may."""

    class Norm(nn.Module):
        def __init__(self, weight: Tensor):
            super().__init__()
            self.weight = nn.Parameter(weight.detach().clone())

        def forward(self, x: Tensor) -> Tensor:
            return x * (self.weight / self.weight.norm() if self.weight.dim() == 1 else self.weight)

    model = families.build("llama")
    model.model.norm = Norm(model.model.norm.weight)
    return model


def expert_of_other_rollouts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tokens of experts are given to the wrong rollout: the sum of the scores is right, each is wrong."""
    own = experts._StackUses._rollouts

    def turned(self: Any, count: int) -> Tensor | None:
        found = own(self, count)
        return None if found is None else self.collector.batch - 1 - found

    monkeypatch.setattr(experts._StackUses, "_rollouts", turned)
    return families.build("mixtral")


def broken_forward_of_experts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A product that is not what was observed."""
    own = experts._Reported.forward
    monkeypatch.setattr(experts._Reported, "forward", staticmethod(lambda ctx, x, *rest: 1.1 * own(ctx, x, *rest)))
    return families.build("mixtral")


@pytest.mark.parametrize(
    "fault",
    [broken_embedding, broken_norm, broken_forward_of_a_norm, expert_of_other_rollouts, broken_forward_of_experts],
    ids=lambda fault: fault.__name__,
)
def test_the_self_check_notices(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fault(monkeypatch)
    if "expert" in fault.__name__:
        skip_without_stacks(model)
    with pytest.raises(UserError, match="differs from autograd's"):
        backward.attach(model, families.batch())


# Input that cannot be measured


def untouched(model: Any) -> bool:
    return all("forward" not in m.__dict__ for m in model.modules()) and all(p.grad is None for p in model.parameters())


def test_weights_that_are_not_finite_are_named() -> None:
    model = families.build("llama")
    model.model.layers[1].mlp.up_proj.weight.data[0, 0] = torch.nan
    with pytest.raises(backward.Refusal, match=r"layers\.1\.mlp\.up_proj\.weight has weights that are NaN or infinite"):
        backward.attach(model, families.batch())
    assert untouched(model)


def test_meta_tensors_are_named() -> None:
    model = families.build("llama").to("meta")
    with pytest.raises(backward.Refusal, match=r"embed_tokens\.weight has no values \(a meta tensor\)"):
        backward.attach(model, families.batch())


def test_a_vocabulary_larger_than_the_embedding_is_refused() -> None:
    model, rollouts = families.build("llama"), families.batch()
    tokens = rollouts.tokens.clone()
    tokens[0, 0] = families.VOCABULARY
    with pytest.raises(backward.Refusal, match=r"hold token 37, but the model's embedding has 37 rows"):
        backward.attach(model, replace(rollouts, tokens=tokens))
    assert untouched(model)


@pytest.mark.parametrize(
    ("name", "reentrant"),
    [
        ("mixtral", True),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("mixtral", False), ("mamba", True), ("mamba", False))
        ),
    ],
)
def test_checkpointing_with_hooks_of_others_is_exact(name: str, reentrant: bool) -> None:
    model, rollouts = families.build(name), families.batch()
    wanted, _ = families.grams(model, rollouts)
    seen = []
    for module in model.modules():
        module.register_forward_hook(lambda *_: seen.append(1))
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    found, _ = families.grams(model, rollouts)
    assert seen
    assert found.keys() == wanted.keys()
    for name, products in wanted.items():
        np.testing.assert_allclose(found[name], products, rtol=1e-4, atol=1e-4 * abs(products).max() + 1e-9)


def test_a_forward_of_custom_code_is_exact() -> None:
    """A model that is none of transformers: einsum, a parameter of its own, a weight that is used twice."""

    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config: Any = type("Config", (), {"vocab_size": families.VOCABULARY})()
            self.words = nn.Embedding(families.VOCABULARY, 8)
            self.scale = nn.Parameter(torch.randn(8))
            self.mix = nn.Parameter(torch.randn(8, 8))
            self.lin = nn.Linear(8, 8)

        def forward(self, input_ids: Tensor, **_: Any) -> Any:
            x = self.words(input_ids)
            x = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
            x = torch.einsum("blc,cd->bld", x * self.scale, self.mix).tanh()
            x = self.lin(x).tanh() @ self.lin.weight
            return type("Out", (), {"logits": x @ self.words.weight.T})()

    torch.manual_seed(0)
    model, rollouts = Custom(), families.batch(padded=False)
    found, attached = families.grams(model, rollouts)
    assert set(attached.apart) >= {"scale", "mix", "lin.weight", "words.weight"}
    for name, gradients in families.by_autograd(model, rollouts).items():
        torch.testing.assert_close(torch.from_numpy(found[name]), gradients @ gradients.mT, rtol=1e-4, atol=1e-5)


def test_gram_is_finite_and_scores_are_of_every_rollout() -> None:
    model, rollouts = families.build("mixtral"), families.batch()
    counts: dict[str, int] = {}

    def count(score: Score) -> None:
        assert score.rollouts == len(rollouts.mask)
        assert bool(torch.isfinite(gram.gram(score)).all())
        counts[score.name] = counts.get(score.name, 0) + 1

    skip_without_stacks(model)
    backward.attach(model).stream(rollouts, count)
    assert {n: c for n, c in counts.items() if c > 1} == {n: 4 for n in counts if ".experts." in n}
