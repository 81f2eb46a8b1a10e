"""Decoders against a plain forward of every row by itself, while rows leave at different times."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config

from grposcope.training import decoding
from grposcope.training.decoding import CachedDecoder, LlamaDecoder

VOCABULARY = 40
SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "max_position_embeddings": 64,
}
MODELS = {
    "llama, tied, groups of query heads": LlamaConfig(num_key_value_heads=2, tie_word_embeddings=True, **SIZE),
    "llama, untied, one key-value head": LlamaConfig(num_key_value_heads=1, tie_word_embeddings=False, **SIZE),
    "llama, head size of its own": LlamaConfig(num_key_value_heads=6, head_dim=16, **SIZE),
    "llama, stretched positions": LlamaConfig(
        num_key_value_heads=3,
        rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
        **SIZE,
    ),
    "qwen2, tied": Qwen2Config(num_key_value_heads=3, tie_word_embeddings=True, **SIZE),
    "qwen2, untied": Qwen2Config(num_key_value_heads=2, tie_word_embeddings=False, **SIZE),
}
# after which step which rows of 3 prompts × 4 completions go on: evenly, unevenly, a whole prompt gone, one row left
LEAVING = {
    "none": {},
    "evenly": {1: [0, 2, 4, 6, 8, 10], 3: [1, 3, 5]},
    "unevenly": {0: [0, 1, 2, 4, 8, 9, 10, 11], 2: [0, 3, 4, 6], 4: [3]},
    "a prompt": {1: [0, 1, 9, 11], 3: [1, 3], 5: [1]},
}


def random_model(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(MODELS[name]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4).add_(torch.randn_like(parameter) / 10)  # biases and norms too
    return model


def prompts(ragged: bool) -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids, dtype=torch.bool)
    if ragged:
        mask[0, :5], mask[2, :1] = False, False
    return ids.masked_fill(~mask, 0), mask


def plain(model: PreTrainedModel, row: list[int]) -> Tensor:
    """Logits that follow a row of tokens, (V,)."""
    return model(torch.tensor([row])).logits[0, -1]


@pytest.mark.parametrize("make", [LlamaDecoder, CachedDecoder])
@pytest.mark.parametrize("leaving", LEAVING)
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_logits_are_those_of_a_plain_forward(name: str, ragged: bool, leaving: str, make: type) -> None:
    model = random_model(name)
    assert decoding.fits_llama_decoder(model)
    ids, mask = prompts(ragged)
    rows = [row[keep].tolist() for row, keep in zip(ids, mask, strict=True) for _ in range(4)]
    decode = make(model, ids, mask, 4, 7)
    logits, draws = decode.logits, torch.Generator().manual_seed(2)
    for step in range(7):
        expected = torch.stack([plain(model, row) for row in rows])
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
        chosen = torch.randint(0, VOCABULARY, (len(rows),), generator=draws)
        for row, token in zip(rows, chosen.tolist(), strict=True):
            row.append(token)
        going = LEAVING[leaving].get(step)
        if going is not None:
            decode.keep(torch.tensor(going))
            rows, chosen = [rows[i] for i in going], chosen[going]
        logits = decode.step(chosen)
