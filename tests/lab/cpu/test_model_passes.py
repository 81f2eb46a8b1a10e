"""Gradients written out by hand against autograd through the model's own forward, and where it must step aside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

from grposcope.lab.cpu import model_passes
from grposcope.lab.cpu.model_passes import _Pass, fits
from grposcope.lab.policies import recompute_activations
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling import accumulate as accumulating
from grposcope.lab.sampling.accumulate import accumulate, frozen_logprobs
from grposcope.lab.sampling.logprobs import token_logprobs

P, G, S, T, V = 3, 4, 6, 7, 61
SIZES = {
    "vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 64, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None,
}  # fmt: skip
MODELS: dict[str, Callable[[], Any]] = {
    "llama-tied": lambda: LlamaConfig(num_key_value_heads=2, tie_word_embeddings=True, **SIZES),
    "llama-untied": lambda: LlamaConfig(num_key_value_heads=4, tie_word_embeddings=False, **SIZES),
    "llama-one-head": lambda: LlamaConfig(num_key_value_heads=1, head_dim=16, tie_word_embeddings=True, **SIZES),
    "qwen2-tied": lambda: Qwen2Config(num_key_value_heads=2, tie_word_embeddings=True, **SIZES),
    "qwen2-untied": lambda: Qwen2Config(num_key_value_heads=2, tie_word_embeddings=False, **SIZES),
}


def made(name: str, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """A random model whose distributions are far from flat, and whose biases and norms are not those of the start."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(MODELS[name]()).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4).add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(autouse=True)
def full_precision_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's RMS norm rounds to float32 whatever the model's type; here it does not, so that results compare."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)

    for norm in (LlamaRMSNorm, Qwen2RMSNorm):
        monkeypatch.setattr(norm, "forward", forward)


def rollouts(lengths: list[int], prompts: list[int]) -> RolloutBatch:
    """Random rollouts of the given lengths, P·G and P; token 0, the padding of embeddings, may be among them."""
    stream = torch.Generator().manual_seed(1)
    prompt_mask = torch.arange(S).flip(0) < torch.tensor(prompts)[:, None]
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    ids = torch.randint(0, V, (P, S), generator=stream) * prompt_mask
    zeros = torch.zeros(mask.shape)
    return RolloutBatch(
        prompt_ids=ids.repeat_interleave(G, 0),
        prompt_mask=prompt_mask.repeat_interleave(G, 0),
        tokens=torch.randint(0, V, mask.shape, generator=stream) * mask,
        mask=mask,
        logp=zeros,
        entropy=zeros,
        truncated=torch.zeros(len(mask), dtype=torch.bool),
        rewards=torch.zeros(P, G, dtype=torch.float64),
    )


def repeated(batch: RolloutBatch) -> RolloutBatch:
    """The batch with completions that are the same, within a group, across groups, and but for the last token."""
    source = torch.tensor([0, 0, 2, 0, 0, 5, 5, 5, 8, 9, 0, 9])
    tokens, mask = batch.tokens[source], batch.mask[source]
    tokens[3, -1] = (tokens[3, -1] + 1) % V
    return replace(batch, tokens=tokens, mask=mask)


RAGGED = rollouts([7, 1, 3, 5, 7, 7, 2, 1, 4, 6, 1, 7], [6, 3, 5])
CASES = {"ragged": RAGGED, "even": rollouts([T] * P * G, [S] * P), "one-token": rollouts([1] * P * G, [S, 1, 4]),
         "repeated": repeated(RAGGED)}  # fmt: skip


def weights(rows: Tensor, logp: Tensor) -> Tensor:
    """Weights that depend on the row and on log π."""
    fixed = torch.randn(P * G, T, generator=torch.Generator().manual_seed(2), dtype=logp.dtype)
    return fixed[rows, : logp.shape[1]] * (1 + logp.tanh())


def by_autograd(
    model: PreTrainedModel, batch: RolloutBatch, rows: Tensor, temperature: float, bonus: Tensor | None
) -> Any:
    """The same through the model's own forward, without packing: gradients by name, log π and entropies."""
    model = copy.deepcopy(model)
    total, logps, entropies = torch.zeros(()), [], []
    for row in rows.tolist():
        prompt, tokens = batch.prompt_ids[row][batch.prompt_mask[row]], batch.tokens[row][batch.mask[row]]
        logits = model(torch.cat((prompt, tokens))[None]).logits[0, len(prompt) - 1 : -1]
        every = (logits / temperature).log_softmax(-1)
        logp, entropy = every.gather(-1, tokens[:, None])[:, 0], -(every.exp() * every).sum(-1)
        total = total + (weights(torch.tensor([row]), logp.detach()[None])[0] * logp).sum()
        if bonus is not None:
            total = total - (bonus[row, : len(tokens)] * entropy).sum()
        logps.append(logp.detach())
        entropies.append(entropy.detach())
    total.backward()
    return gradients(model), torch.cat(logps), torch.cat(entropies)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}


def spread(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Largest difference, over the largest entry."""
    assert found.keys() == expected.keys()
    scale = max(float(g.abs().max()) for g in expected.values())
    return max(float((found[name] - expected[name]).abs().max()) for name in expected) / scale


@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", MODELS)
def test_gradient_is_autograds(name: str, case: str, bonus: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rollouts are taken at a time."""
    monkeypatch.setattr(model_passes, "HEAD", 9 * V)  # so that the head takes several turns
    model, batch = made(name), CASES[case]
    assert fits(model)
    rows = torch.tensor([0, 1, 3, 5, 6, 8, 9, 10, 11])  # some are left out, as dead groups are
    coefficients = torch.rand(P * G, T, dtype=torch.float64) * batch.mask if bonus else None
    expected, logp, entropy = by_autograd(model, batch, rows, 0.7, coefficients)
    mask = batch.mask[rows]
    for micro_batch in (1, 3, 100):
        model.zero_grad()
        found, nats = accumulate(model, batch, rows, 0.7, micro_batch, weights, coefficients)
        torch.testing.assert_close(found[mask], logp, atol=1e-10, rtol=1e-10)
        assert found[~mask].abs().sum() == 0
        if bonus:
            torch.testing.assert_close(nats[mask], entropy, atol=1e-10, rtol=1e-10)
        assert spread(gradients(model), expected) < 1e-10, micro_batch


@pytest.mark.parametrize("name", MODELS)
def test_single_precision_agrees_to_round_off(name: str) -> None:
    model, rows = made(name, torch.float32), torch.arange(P * G)
    expected, logp, _ = by_autograd(model, RAGGED, rows, 1.0, None)
    found, _ = accumulate(model, RAGGED, rows, 1.0, 5, weights)
    torch.testing.assert_close(found[RAGGED.mask], logp, atol=2e-5, rtol=1e-4)
    assert spread(gradients(model), expected) < 1e-4
    torch.testing.assert_close(frozen_logprobs(model, RAGGED, 1.0, 5), found, atol=1e-5, rtol=1e-5)


def test_gradients_add_up() -> None:
    model, rows = made("qwen2-untied"), torch.arange(P * G)
    accumulate(model, RAGGED, rows, 1.0, 100, weights)
    once = {name: gradient.clone() for name, gradient in gradients(model).items()}
    accumulate(model, RAGGED, rows, 1.0, 100, weights)
    assert spread(gradients(model), {name: 2 * g for name, g in once.items()}) < 1e-12


def test_the_same_call_gives_the_same_bits() -> None:
    results = []
    for _ in range(2):
        model = made("llama-tied", torch.float32)
        accumulate(model, RAGGED, torch.arange(P * G), 1.0, 3, weights)
        results.append(gradients(model))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def adapted(model: PreTrainedModel) -> Any:
    peft = pytest.importorskip("peft", reason="needs the extra trl, which brings peft")
    return peft.get_peft_model(
        model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )


def frozen_embedding(model: PreTrainedModel) -> PreTrainedModel:
    model.get_input_embeddings().weight.requires_grad_(False)
    return model


def recomputing(model: PreTrainedModel) -> PreTrainedModel:
    recompute_activations(model)
    return model


@pytest.mark.parametrize("change", [adapted, frozen_embedding, recomputing], ids=lambda f: f.__name__)
def test_what_the_pass_does_not_know_goes_through_the_models_own_forward(
    change: Callable[[PreTrainedModel], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Which is said with the reason, once."""
    accumulating._say_slow.cache_clear()
    model = change(made("llama-untied"))
    monkeypatch.setattr(_Pass, "__init__", lambda *a, **k: pytest.fail("went through the pass by hand"))
    rows = torch.arange(P * G)
    logp, _ = token_logprobs(model, RAGGED, rows)
    (weights(rows, logp.detach()) * logp).sum().backward()
    expected = {name: g.clone() for name, g in gradients(model).items()}
    model.zero_grad()
    accumulate(model, RAGGED, rows, 1.0, 5, weights)
    assert spread(gradients(model), expected) < 1e-6
    accumulate(model, RAGGED, rows, 1.0, 5, weights)
    (said,) = [record for record in caplog.records if "the slower way" in record.getMessage()]
    assert said.levelname == "WARNING"
    reason = "it recomputes activations" if change is recomputing else "some of its weights are not trained"
    assert reason in said.getMessage()


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden_act": "gelu"},
        {"mlp_bias": True},
        {"attention_bias": True},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ],
    ids=str,
)
def test_other_shapes_are_not_taken_for_llama(settings: dict[str, Any]) -> None:
    model = AutoModelForCausalLM.from_config(LlamaConfig(num_key_value_heads=2, **SIZES, **settings))
    assert not fits(model)
    assert not fits(made("llama-tied").to(torch.bfloat16))
    mixed = made("llama-tied", torch.float32)
    mixed.model.norm.to(torch.float64)
    assert not fits(mixed)
    windowed = Qwen2Config(
        num_key_value_heads=2, use_sliding_window=True, sliding_window=2, max_window_layers=0, **SIZES
    )
    assert not fits(AutoModelForCausalLM.from_config(windowed))
