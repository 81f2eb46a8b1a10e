"""Token-by-token decoding with a key-value cache: the sampler's inner loop.

Three decoders share one small interface (`logits` after the prompt, then `step` and `keep`):
`CachedDecoder` runs any Hugging Face causal LM through its own forward; `llama.LlamaDecoder` runs models of the Llama
shape by the same formulas without that forward's overhead, and `native.NativeDecoder` does so with steps in C, where
a compiler is installed. `decoder` picks the fastest that fits. Tests hold all to a plain forward.

A decoder is made anew for every batch of rollouts, so it always has the current parameters.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from grposcope.training import native
from grposcope.training.llama import LlamaDecoder

logger = logging.getLogger("grposcope")


class Decoder(Protocol):
    """A decoder as the sampler uses it. Rows are prompt-major, `group` completions per prompt."""

    logits: Tensor
    """(B, V) logits that follow the prompt."""
    light: bool
    """Whether `keep` moves nothing for rows that it drops."""

    def __init__(self, model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int): ...

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token per row, (B,), and return the next logits (B, V), valid until the next step."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows (indices into the current ones, ascending); one that is repeated becomes several.

        There are never more rows of a prompt than its group had.
        """
        ...


def decoder(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int, precision: str = "float32"
) -> Decoder:
    """A decoder that has read the prompts (P, S), padded on the left, for `group` completions of ≤ `steps` tokens.

    precision: that of the weights, one of `native.PRECISIONS`, where the decoder in C runs; others say once that they
    do not take it.
    """
    if fits_llama_decoder(model):
        if native.fits(model):
            return native.NativeDecoder(model, ids, mask, group, steps, native.available(precision))
        kind: type[Decoder] = LlamaDecoder
    else:
        kind = CachedDecoder
        if model.device.type == "cpu":
            _say_slow(f"{type(model).__name__} in {str(model.dtype).removeprefix('torch.')}")
    if precision != "float32":
        _say_precision(precision, str(model.dtype).removeprefix("torch."))
    return kind(model, ids, mask, group, steps)


@cache
def _say_precision(asked: str, given: str) -> None:
    logger.warning("sampling in %s, not in %s, which only the decoder in C takes", given, asked)


@cache
def _say_slow(name: str) -> None:
    logger.warning(
        "%s is sampled through its own forward, the slower way: the fast decoder takes plain float32 Llama and Qwen2",
        name,
    )


def fits_llama_decoder(model: PreTrainedModel) -> bool:
    """Whether the model is an unadapted float32 Llama or Qwen2 on the CPU."""
    if type(model).__name__ not in ("LlamaForCausalLM", "Qwen2ForCausalLM") or model.device.type != "cpu":
        return False
    config, layer = model.config, model.model.layers[0]
    linear = (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.up_proj, layer.mlp.down_proj, model.lm_head)
    plain = all(type(m) is nn.Linear for m in linear) and all(m.bias is None for m in linear[1:])
    windowed = getattr(config, "use_sliding_window", False)
    return plain and model.dtype == torch.float32 and config.hidden_act == "silu" and not windowed


class CachedDecoder:
    """Any Hugging Face causal LM, through its own forward and cache."""

    light = False

    def __init__(self, model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int):
        start = model(
            input_ids=ids,
            attention_mask=mask.long(),
            position_ids=(mask.long().cumsum(-1) - 1).clamp(min=0),
            past_key_values=DynamicCache(),
            use_cache=True,
            logits_to_keep=1,
        )
        self.model, self.cache = model, start.past_key_values
        self.cache.batch_repeat_interleave(group)
        self.logits = start.logits[:, -1].repeat_interleave(group, 0)
        self.positions = mask.sum(-1).repeat_interleave(group)
        self.mask = F.pad(mask.repeat_interleave(group, 0).long(), (0, steps), value=1)
        self.width = ids.shape[1]

    def step(self, tokens: Tensor) -> Tensor:
        self.width += 1
        out = self.model(
            input_ids=tokens[:, None],
            attention_mask=self.mask[:, : self.width],
            position_ids=self.positions[:, None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.positions = self.positions + 1
        return out.logits[:, -1]

    def keep(self, rows: Tensor) -> None:
        self.cache.batch_select_indices(rows)
        self.positions, self.mask = self.positions[rows], self.mask[rows]
