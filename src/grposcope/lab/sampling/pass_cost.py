"""What a pass over rollouts costs, from the shapes of a model and one measured pass, before any is drawn.

Of a pass that autograd makes, each block keeps about 20 numbers of the model's width per token (a Llama whose inner
layer is three times as wide keeps 21), and the logits and their work are five numbers per token of the vocabulary. Good
to a factor of two: a probe's memory is told more closely (`instruments.gradient.memory`), from what a pass kept.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from transformers import PreTrainedModel

from grposcope.lab import cpu
from grposcope.lab.no_gradient import no_gradient

LOGITS, OF_BLOCK = 5, 20
"""Numbers kept per token: of each entry of the vocabulary, and of each entry of a block's width."""

BACKWARD = 3.5
"""Time of a pass with its gradients over that of its forward pass alone; with recomputed activations one more."""


def autograd_bytes(model: PreTrainedModel, tokens: int, recomputed: bool = False) -> float:
    """The same where autograd makes the pass, whatever the model."""
    config: Any = model.config.get_text_config()
    layers, width = getattr(config, "num_hidden_layers", 1), getattr(config, "hidden_size", 1)
    blocks = layers + OF_BLOCK if recomputed else OF_BLOCK * layers
    return 4.0 * tokens * (LOGITS * getattr(config, "vocab_size", 1) + blocks * width)


@no_gradient
@cpu.with_products
def forward_seconds(model: PreTrainedModel, rows: int, tokens: int) -> float:
    """Seconds of a forward pass over rows of so many tokens each, which this makes; no random number is drawn."""
    ids = torch.zeros(rows, tokens, dtype=torch.long, device=model.device)
    began = time.perf_counter()
    out = model(input_ids=ids, use_cache=False, logits_to_keep=1).logits
    float(out.sum())  # waits for a GPU
    return time.perf_counter() - began


def step_seconds(model: PreTrainedModel, rows: int, tokens: int, recomputed: bool = False) -> tuple[float, float]:
    """Seconds of drawing so many rows of so many tokens, and of a pass over them with its gradients, from two passes.

    Tokens are drawn one after the other, each in a pass over one token of every row, without the cost of attention. Of
    a model with a decoder in C the first is too long.
    """
    seconds = forward_seconds(model, rows, 1)
    row = forward_seconds(model, 1, tokens)
    return seconds * tokens, (BACKWARD + recomputed) * row * rows
