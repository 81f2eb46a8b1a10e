"""Token-by-token decoding with a key-value cache: the sampler's inner loop.

Two decoders share one small interface (`logits` after the prompt, then `step` and `keep`):
`Cached` runs any Hugging Face causal LM through its own forward; `Lean` runs models of the Llama
shape by the same formulas without that forward's per-call overhead, which on small models is
most of the time. `decoder` picks the one that fits. Tests hold the two equal.

Weights are used by reference, never copied, so a decoder always sees the current parameters.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel


class Decoder(Protocol):
    """What the sampler needs. Rows are prompt-major, `group` completions per prompt."""

    logits: Tensor
    """(B, V) logits that follow the prompt."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token per row, (B,), and return the next logits (B, V)."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only (indices into the current ones)."""
        ...


def decoder(model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int) -> Decoder:
    """Read the prompts (P, S), padded on the left, once each, ready for `group` completions of ≤ `steps` tokens."""
    return (Lean if fits_lean(model) else Cached)(model, ids, mask, group, steps)


def fits_lean(model: PreTrainedModel) -> bool:
    """Whether the model is an unadapted float Llama or Qwen2 on the CPU."""
    if type(model).__name__ not in ("LlamaForCausalLM", "Qwen2ForCausalLM") or model.device.type != "cpu":
        return False
    config = model.config
    layer = model.model.layers[0]
    plain = all(type(m) is nn.Linear for m in (layer.self_attn.q_proj, layer.mlp.down_proj, model.lm_head))
    windowed = getattr(config, "use_sliding_window", False)
    return plain and config.hidden_act == "silu" and not windowed and not torch.is_autocast_enabled("cpu")


def _prefill(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> tuple[Tensor, Any, Tensor]:
    """Logits after each prompt (P, V), its cache, and the prompts' lengths (P,)."""
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    out = model(
        input_ids=ids,
        attention_mask=mask.long(),
        position_ids=positions,
        past_key_values=DynamicCache(),
        use_cache=True,
        logits_to_keep=1,
    )
    return out.logits[:, -1], out.past_key_values, mask.sum(-1)


class Cached:
    """Any Hugging Face causal LM, through its own forward and cache."""

    def __init__(self, model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int):
        logits, self.cache, lengths = _prefill(model, ids, mask)
        self.model = model
        self.cache.batch_repeat_interleave(group)
        self.logits = logits.repeat_interleave(group, 0)
        self.positions = lengths.repeat_interleave(group)
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


class Lean:
    """Llama-shaped models, one token at a time, straight from the weights.

    Per layer: RMS norm, q/k/v, rotary positions, attention over the cache (query heads grouped
    on their key-value head), output projection, RMS norm, SwiGLU. Keys and values live in
    preallocated arrays (B, heads, S + steps, head size).
    """

    def __init__(self, model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int):
        logits, cache, lengths = _prefill(model, ids, mask)
        self.model: Any = model
        self.width = ids.shape[1]
        self.logits = logits.repeat_interleave(group, 0)
        self.positions = lengths.repeat_interleave(group)
        pad = (0, 0, 0, steps)
        self.keys = [F.pad(layer.keys, pad).repeat_interleave(group, 0) for layer in cache.layers]
        self.values = [F.pad(layer.values, pad).repeat_interleave(group, 0) for layer in cache.layers]
        span = torch.arange(self.width + steps + 1, device=ids.device)[None]
        cos, sin = model.model.rotary_emb(self.values[0], span)
        self.cos, self.sin = cos[0], sin[0]
        self.bias: Tensor | None = None
        if not bool(mask.all()):
            hidden = F.pad(~mask, (0, steps)).repeat_interleave(group, 0)
            self.bias = torch.zeros(hidden.shape, dtype=logits.dtype).masked_fill(hidden, -torch.inf)[:, None, None]

    def step(self, tokens: Tensor) -> Tensor:
        body = self.model.model
        cos, sin = self.cos[self.positions][:, None], self.sin[self.positions][:, None]
        x = body.embed_tokens.weight[tokens]
        for index, layer in enumerate(body.layers):
            x = x + self._attend(index, layer.self_attn, _normed(x, layer.input_layernorm), cos, sin)
            mlp, z = layer.mlp, _normed(x, layer.post_attention_layernorm)
            x = x + _linear(F.silu(_linear(z, mlp.gate_proj)) * _linear(z, mlp.up_proj), mlp.down_proj)
        self.width += 1
        self.positions = self.positions + 1
        return _linear(_normed(x, body.norm), self.model.lm_head)

    def _attend(self, index: int, attention: Any, z: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, size, end = len(z), attention.head_dim, self.width + 1
        keys, values = self.keys[index], self.values[index]
        heads = keys.shape[1]
        query = _rotated(_linear(z, attention.q_proj).view(rows, -1, size), cos, sin)
        keys[:, :, self.width] = _rotated(_linear(z, attention.k_proj).view(rows, heads, size), cos, sin)
        values[:, :, self.width] = _linear(z, attention.v_proj).view(rows, heads, size)
        grouped = query.view(rows, heads, -1, size) * attention.scaling
        scores = grouped @ keys[:, :, :end].transpose(-1, -2)
        if self.bias is not None:
            scores = scores + self.bias[..., :end]
        mixed = scores.softmax(-1) @ values[:, :, :end]
        return _linear(mixed.reshape(rows, -1), attention.o_proj)

    def keep(self, rows: Tensor) -> None:
        self.keys = [k[rows] for k in self.keys]
        self.values = [v[rows] for v in self.values]
        self.positions = self.positions[rows]
        if self.bias is not None:
            self.bias = self.bias[rows]


def _linear(x: Tensor, layer: Any) -> Tensor:
    return F.linear(x, layer.weight, layer.bias)


def _normed(x: Tensor, norm: Any) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.variance_epsilon) * norm.weight


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of (B, heads, size) by the tables (B, 1, size)."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin
