"""Batches that do not fit into memory are refused before they are drawn."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.lab.batch_memory import PER_TOKEN, check
from grposcope.lab.train.setup import cache_bytes


def test_the_bound_is_the_product_of_all_sizes() -> None:
    """4 × 8 rollouts of 100 tokens; per token PER_TOKEN bytes and those of the cache; 8 bytes per inner product."""
    sizes, needed = {"prompts": 4, "group": 8}, 32 * 100 * (PER_TOKEN + 60) + 8 * 32**2
    check(sizes, 100, 60, gram=True, free=needed)
    with pytest.raises(UserError, match=r"prompts 4 × group 8 × max_tokens 100 need .* lower one of them"):
        check(sizes, 100, 60, gram=True, free=needed - 1)


def test_numbers_beyond_any_machine_are_refused_at_once() -> None:
    with pytest.raises(UserError, match="are more rollouts than the 100,000"):
        check({"prompts": 10**8, "group": 10**8}, free=float("inf"))


def test_a_model_keeps_a_key_and_a_value_per_layer_and_head() -> None:
    config = SimpleNamespace(
        num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, hidden_size=64, head_dim=None
    )
    policy = SimpleNamespace(model=SimpleNamespace(config=config, dtype=torch.float32))
    assert cache_bytes(policy) == 2 * 3 * 2 * 8 * 4  # type: ignore[arg-type]
