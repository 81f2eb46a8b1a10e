"""Fixtures: tiny random models of several families, with the character tokenizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import AutoModelForCausalLM, GPTNeoXConfig, LlamaConfig, Qwen2Config

from grposcope.lab.policies import Policy
from grposcope.lab.train.pretrain import EOS, PAD, _tokenizer

SIZE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "bos_token_id": None,
}
FAMILIES = {
    "llama": lambda v: LlamaConfig(vocab_size=v, num_key_value_heads=2, tie_word_embeddings=True, **SIZE),
    "qwen2": lambda v: Qwen2Config(vocab_size=v, num_key_value_heads=2, **SIZE),
    "gpt_neox": lambda v: GPTNeoXConfig(vocab_size=v, **SIZE),
}


@pytest.fixture
def make_policy() -> Callable[[str], Policy]:
    """A random policy of the named family; weights are spread enough that its distributions are far from flat."""

    def make(family: str) -> Policy:
        torch.manual_seed(0)
        tokens = _tokenizer()
        model = AutoModelForCausalLM.from_config(FAMILIES[family](len(tokens))).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(4 if parameter.dim() > 1 else 1)
        return Policy(family, model, tokens, torch.tensor([EOS]), PAD)

    return make


@pytest.fixture
def policy(make_policy: Callable[[str], Policy]) -> Policy:
    return make_policy("llama")
