"""Token-by-token decoding with a key-value cache: the sampler's inner loop.

Two decoders share one small interface (`logits` after the prompt, then `step` and `keep`):
`CachedDecoder` runs any Hugging Face causal LM through its own forward; `LlamaDecoder` runs models of the Llama
shape by the same formulas without that forward's per-call overhead, which on small models is
most of the time. `decoder` picks the one that fits. Tests hold the two equal.

A decoder is made anew for every batch of rollouts, so it always has the current parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel


class Decoder(Protocol):
    """A decoder as the sampler uses it. Rows are prompt-major, `group` completions per prompt."""

    logits: Tensor
    """(B, V) logits that follow the prompt."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token per row, (B,), and return the next logits (B, V)."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (indices into the current ones)."""
        ...


def decoder(model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int) -> Decoder:
    """A decoder that has read the prompts (P, S), padded on the left, for `group` completions of ≤ `steps` tokens."""
    return (LlamaDecoder if fits_llama_decoder(model) else CachedDecoder)(model, ids, mask, group, steps)


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


class LayerWeights(NamedTuple):
    """Matrices of one layer, concatenated where they read the same input, with constant factors folded in.

    qkv (and its bias): query, key and value rows, the queries times the attention's scale, all times
    the weight of the norm before them and √(hidden size), which `_unit` leaves out. gate_up: likewise.
    out and down: as they are.
    """

    qkv: Tensor
    bias: Tensor | None
    out: Tensor
    gate_up: Tensor
    down: Tensor


class LlamaDecoder:
    """Models of the Llama shape, computed from their weights.

    Per layer: RMS norm, q/k/v, rotary positions, attention over the cache (query heads grouped
    on their key-value head), output projection, RMS norm, SwiGLU. Keys and values live in
    preallocated arrays (B·H, S + steps, head size), H key-value heads.
    """

    def __init__(self, model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int):
        body: Any = model.model
        config, self.width = model.config, ids.shape[1]
        self.heads, self.size = config.num_key_value_heads, body.layers[0].self_attn.head_dim
        self.embedding = body.embed_tokens.weight
        self.layers = [_fused(layer, config.hidden_size**0.5) for layer in body.layers]
        self.head: Tensor = model.lm_head.weight * (body.norm.weight * config.hidden_size**0.5)
        self.floor = torch.full((1, 1), (config.hidden_size * config.rms_norm_eps) ** 0.5)
        span = torch.arange(self.width + steps + 1)[None]
        self.rotation = torch.cat(body.rotary_emb(self.head, span)).transpose(0, 1)  # (positions, 2, head size)
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        past = torch.ones(self.width, self.width, dtype=torch.bool).tril() & mask[:, None]
        blocked = torch.zeros(past.shape).masked_fill(~past, torch.finfo(torch.float32).min)[:, None]

        def mix(index: int, turned: Tensor, values: Tensor) -> Tensor:
            q, k, v = (
                part.unflatten(0, ids.shape).transpose(1, 2)
                for part in (turned[:, : -self.heads], turned[:, -self.heads :], values)
            )
            for kept, part in ((self.keys, k), (self.values, v)):
                kept.append(F.pad(part, (0, 0, 0, steps)).repeat_interleave(group, 0).flatten(0, 1))
            mixed = F.scaled_dot_product_attention(q, k, v, blocked, scale=1.0, enable_gqa=q.shape[1] > self.heads)
            return mixed.transpose(1, 2).reshape(len(turned), -1)

        positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
        last = self._through(ids.flatten(), positions.flatten(), mix).unflatten(0, ids.shape)[:, -1]
        self.logits = F.linear(last, self.head).repeat_interleave(group, 0)
        self.positions = mask.sum(-1).repeat_interleave(group)
        self.bias: Tensor | None = None
        if not bool(mask.all()):
            hidden = F.pad(~mask, (0, steps)).repeat_interleave(group * self.heads, 0)
            self.bias = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None]

    def step(self, tokens: Tensor) -> Tensor:
        last = self._through(tokens, self.positions, self._mix)
        self.width += 1
        self.positions = self.positions + 1
        return F.linear(last, self.head)

    def keep(self, rows: Tensor) -> None:
        self.keys = [self._rows(k)[rows].flatten(0, 1) for k in self.keys]
        self.values = [self._rows(v)[rows].flatten(0, 1) for v in self.values]
        self.positions = self.positions[rows]
        if self.bias is not None:
            self.bias = self._rows(self.bias)[rows].flatten(0, 1)

    def _through(self, tokens: Tensor, positions: Tensor, mix: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
        """All layers on n tokens; (n, hidden size) after the last norm.

        `mix(layer, q and k (n, heads, size), v (n, H, size))` is the attention.
        """
        cos, sin = self.rotation[positions].unsqueeze(1).unbind(2)
        x = self.embedding[tokens]
        for index, weights in enumerate(self.layers):
            joined = F.linear(self._unit(x), weights.qkv, weights.bias).unflatten(-1, (-1, self.size))
            turned = _rotated(joined[:, : -self.heads], cos, sin)
            x = torch.addmm(x, mix(index, turned, joined[:, -self.heads :]), weights.out.T)
            gate, up = F.linear(self._unit(x), weights.gate_up).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate).mul_(up), weights.down.T)
        return self._unit(x)

    def _mix(self, index: int, turned: Tensor, values: Tensor) -> Tensor:
        """One token's attention over the cache, (B, heads · size), after its key and value have joined it."""
        keys, cached, end = self.keys[index], self.values[index], self.width + 1
        self._rows(keys)[:, :, self.width] = turned[:, -self.heads :]
        self._rows(cached)[:, :, self.width] = values
        queries = turned[:, : -self.heads].reshape(len(keys), -1, self.size)
        past = keys[:, :end].transpose(1, 2)
        scores = torch.bmm(queries, past) if self.bias is None else torch.baddbmm(self.bias[..., :end], queries, past)
        return torch.bmm(scores.softmax(-1), cached[:, :end]).reshape(len(turned), -1)

    def _rows(self, x: Tensor) -> Tensor:
        """A view of x (B·H, …) as (B, H, …)."""
        return x.unflatten(0, (-1, self.heads))

    def _unit(self, x: Tensor) -> Tensor:
        """RMS norm without its weight, over √(hidden size): x / √(‖x‖² + ε · hidden size)."""
        return x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self.floor)


def _fused(layer: Any, scale: float) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    scales = (attention.scaling, 1.0, 1.0)
    qkv = torch.cat([p.weight * s for p, s in zip(projections, scales, strict=True)])
    bias = None
    if attention.q_proj.bias is not None:
        bias = torch.cat([p.bias * s for p, s in zip(projections, scales, strict=True)])
    gate_up = torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight))
    return LayerWeights(
        qkv=qkv * (layer.input_layernorm.weight * scale),
        bias=bias,
        out=attention.o_proj.weight,
        gate_up=gate_up * (layer.post_attention_layernorm.weight * scale),
        down=mlp.down_proj.weight,
    )


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of (n, heads, size) by the tables (n, 1, size)."""
    half = x.shape[-1] // 2
    return torch.addcmul(x * cos, torch.cat((-x[..., half:], x[..., :half]), -1), sin)
