"""Token-by-token decoding with a key-value cache: the sampler's inner loop.

All decoders share the small interface `lab.cpu.Decoder` (`logits` after the prompt, then `step` and `keep`). `decoder`
asks `cpu` for one that is fast for this model on this machine; `_CachedDecoder` runs any Hugging Face causal LM through
its own forward. Tests hold all to a plain forward.

A decoder is made anew for every batch of rollouts, so it always has the current parameters.
"""

from __future__ import annotations

import logging
from functools import cache

import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from grposcope.lab import cpu

logger = logging.getLogger("grposcope")


def decoder(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int, precision: str = "float32"
) -> cpu.Decoder:
    """A decoder that has read the prompts (P, S), padded on the left, for `group` completions of ≤ `steps` tokens.

    precision: number format of its products, one of `lab.cpu.PRECISIONS`, where the decoder in C runs; others say once
    that they do not take it.
    """
    decode = cpu.decoder(model, ids, mask, group, steps, precision)
    if decode is None:
        if model.device.type == "cpu":
            why = "the fast decoder takes plain float32 Llama and Qwen2" if cpu.enabled() else "the CPU engine is off"
            _say_slow(f"{type(model).__name__} in {str(model.dtype).removeprefix('torch.')}", why)
        decode = _CachedDecoder(model, ids, mask, group, steps)
    if precision != "float32" and not isinstance(decode, cpu.DrawsAhead):
        _say_precision(precision, str(model.dtype).removeprefix("torch."))
    return decode


@cache
def _say_precision(asked: str, dtype: str) -> None:
    logger.warning("sampling in %s, not in %s, which only the decoder in C takes", dtype, asked)


@cache
def _say_slow(name: str, why: str) -> None:
    logger.warning("%s is sampled through its own forward, the slower way: %s", name, why)


class _CachedDecoder:
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
        """Read one more token of each rollout (rows,); the logits after it, (rows, V)."""
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
        """Go on with these rows alone, in this order."""
        self.cache.batch_select_indices(rows)
        self.positions, self.mask = self.positions[rows], self.mask[rows]
