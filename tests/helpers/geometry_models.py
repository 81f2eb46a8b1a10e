"""Tiny random models of several families, and rollouts with uneven prompts and completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
)

from grposcope.instruments.gradient import backward
from grposcope.instruments.gradient.score import Score
from grposcope.lab.rollout_batch import RolloutBatch

VOCABULARY, PAD = 13, 2
SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "pad_token_id": PAD,
    "bos_token_id": 1,
    "eos_token_id": 0,
}
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 32,
    "bos_token_id": 1,
    "eos_token_id": 0,
}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(num_key_value_heads=1, tie_word_embeddings=True, **SIZE),  # tied
    "qwen2": lambda: Qwen2Config(num_key_value_heads=2, tie_word_embeddings=False, **SIZE),  # biases of projections
    "qwen3": lambda: Qwen3Config(
        num_key_value_heads=1, head_dim=4, tie_word_embeddings=False, **SIZE
    ),  # norms of heads
    "gpt_neox": lambda: GPTNeoXConfig(**SIZE),  # LayerNorm with biases
    "gpt2": lambda: GPT2Config(**GPT2),  # transposed weights, learned positions, tied
}
GROUPED = {**SIZE, "num_key_value_heads": 1}
GEMMA = {**GROUPED, "head_dim": 4, "query_pre_attn_scalar": 4, "sliding_window": 4}
BART = {"vocab_size": VOCABULARY, "d_model": 8, "decoder_layers": 2, "decoder_attention_heads": 2,
        "decoder_ffn_dim": 12, "max_position_embeddings": 32, "scale_embedding": True, "pad_token_id": PAD,
        "bos_token_id": 1, "eos_token_id": 0}  # fmt: skip
OWN_LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("gemma2", GEMMA),  # scaled embedding, norms by 1 + weight
    "gemma3": ("gemma3_text", GEMMA),
    "opt": ("opt", {**SIZE, "ffn_dim": 12, "word_embed_proj_dim": 8}),  # positions from a mask, flat norms
    "opt-projected": ("opt", {**SIZE, "ffn_dim": 12, "word_embed_proj_dim": 4}),
    "falcon": ("falcon", {**SIZE, "alibi": False}),  # x @ weight.T
    "nemotron": ("nemotron", GROUPED),  # LayerNorm by 1 + weight
}
"""Families whose embeddings, linear layers or norms have a forward of their own: type and configuration."""


def build(family: str, dtype: torch.dtype = torch.float64) -> Any:
    """A random model whose distributions are far from flat."""
    return _random(FAMILIES[family](), dtype)


def configured(kind: str, settings: dict[str, Any], dtype: torch.dtype = torch.float32) -> Any:
    """A random model of any type that transformers knows; float32, as some compute parts of the forward pass in it."""
    return _random(AutoConfig.for_model(kind, **settings), dtype)


def _random(config: Any, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def batch(prompts: int = 2, group: int = 3, seed: int = 0) -> RolloutBatch:
    """Rollouts of uneven length, prompts padded on the left, one of them holding the padding id as a token."""
    random = torch.Generator().manual_seed(seed)
    count, before, after = prompts * group, 4, 5
    prompt = torch.randint(3, VOCABULARY, (prompts, before), generator=random)
    prompt[0, 2] = PAD
    prompt_mask = torch.ones(prompts, before, dtype=torch.bool)
    prompt_mask[1:, 0] = False
    tokens = torch.randint(3, VOCABULARY, (count, after), generator=random)
    lengths = torch.randint(1, after + 1, (count, 1), generator=random)
    lengths[0] = after
    mask = torch.arange(after) < lengths
    rewards = torch.randint(0, 2, (prompts, group), generator=random).double()
    rewards[:, 0], rewards[:, 1] = 0, 1
    ends = torch.zeros_like(mask).scatter(1, lengths - 1, True) | torch.zeros_like(mask).scatter(1, lengths // 2, True)
    return RolloutBatch(
        prompt_ids=prompt.masked_fill(~prompt_mask, PAD).repeat_interleave(group, 0),
        prompt_mask=prompt_mask.repeat_interleave(group, 0),
        tokens=tokens.masked_fill(~mask, PAD),
        mask=mask,
        logp=torch.zeros(count, after),
        entropy=torch.zeros(count, after),
        truncated=torch.zeros(count, dtype=torch.bool),
        rewards=rewards,
        token_annotations={
            "step_rewards": torch.randint(0, 2, mask.shape, generator=random).double() * ends,
            "step_ends": ends & mask,
        },
    )


def logprobs(model: Any, rollouts: RolloutBatch, row: int, temperature: float = 1.0) -> Tensor:
    """log π of the tokens of one rollout, without padding or masks: the slow twin."""
    prompt = rollouts.prompt_ids[row][rollouts.prompt_mask[row]]
    tokens = rollouts.tokens[row][rollouts.mask[row]]
    logits = model(input_ids=torch.cat((prompt, tokens))[None]).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1)[torch.arange(len(tokens)), tokens]


def one_by_one(
    model: Any, rollouts: RolloutBatch, weights: Tensor | None = None, temperature: float = 1.0
) -> list[dict[str, Tensor]]:
    """The gradient of Σ_t w log π of each rollout, a backward pass each."""
    out = []
    for row in range(len(rollouts.mask)):
        logp = logprobs(model, rollouts, row, temperature)
        given = torch.ones_like(logp) if weights is None else weights[row][rollouts.mask[row]]
        model.zero_grad()
        (logp * given).sum().backward()
        out.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    model.zero_grad()
    return out


def scores(
    model: Any, rollouts: RolloutBatch, weights: Tensor | None = None, temperature: float = 1.0
) -> dict[str, Tensor]:
    """Per-rollout gradients S (B, R, C) of every parameter, oriented like it."""
    stacks: dict[str, Tensor] = {}

    def keep(score: Score) -> None:
        assert score.name not in stacks
        stacks[score.name] = score.dense()

    measured = backward.attach(model, temperature=temperature)
    measured.stream(rollouts, keep, weights)
    assert stacks.keys() == measured.measured.keys()
    turned = {
        n for n, p in measured.measured.items() if measured.oriented(n, p).stride() != p.stride() and p.dim() == 2
    }
    flat = {n for n, p in measured.measured.items() if p.dim() == 1}
    for name in measured.apart:
        stacks[name] = stacks[name].reshape(-1, *measured.measured[name].shape)
    flat, turned = flat - set(measured.apart), turned - set(measured.apart)
    return {n: s[:, 0] if n in flat else s.mT if n in turned else s for n, s in stacks.items()}


def assert_same(stacks: dict[str, Tensor], wanted: list[dict[str, Tensor]], rtol: float = 1e-9) -> None:
    scale = max(float(g.abs().max()) for g in wanted[0].values())
    assert stacks.keys() == wanted[0].keys()
    for name, stack in stacks.items():
        for row, gradients in enumerate(wanted):
            torch.testing.assert_close(stack[row], gradients[name].to(stack), rtol=rtol, atol=rtol * scale, msg=name)
