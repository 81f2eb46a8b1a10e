"""Token-by-token decoding with a key-value cache: the sampler's inner loop.

Two decoders share one small interface (`logits` after the prompt, then `step` and `keep`):
`Cached` runs any Hugging Face causal LM through its own forward; `Lean` runs models of the Llama
shape by the same formulas without that forward's per-call overhead, which on small models is
most of the time. `decoder` picks the one that fits. Tests hold the two equal.

A decoder is made anew for every batch of rollouts, so it always has the current parameters.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

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
    """Whether the model is an unadapted float32 Llama or Qwen2 on the CPU."""
    if type(model).__name__ not in ("LlamaForCausalLM", "Qwen2ForCausalLM") or model.device.type != "cpu":
        return False
    config, layer = model.config, model.model.layers[0]
    linear = (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.up_proj, layer.mlp.down_proj, model.lm_head)
    plain = all(type(m) is nn.Linear for m in linear) and all(m.bias is None for m in linear[1:])
    windowed = getattr(config, "use_sliding_window", False)
    return plain and model.dtype == torch.float32 and config.hidden_act == "silu" and not windowed


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


class Weights(NamedTuple):
    """One layer's matrices, joined where they read the same input and with what multiplies them folded in.

    qkv (and its bias): query, key and value rows, the queries times the attention's scale, all times
    the weight of the norm before them. gate_up: likewise. out and down: as they are.
    """

    qkv: Tensor
    bias: Tensor | None
    out: Tensor
    gate_up: Tensor
    down: Tensor


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
        self.layers = [_joined(layer) for layer in self.model.model.layers]
        pad = (0, 0, 0, steps)
        self.keys = [F.pad(layer.keys, pad).repeat_interleave(group, 0) for layer in cache.layers]
        self.values = [F.pad(layer.values, pad).repeat_interleave(group, 0) for layer in cache.layers]
        span = torch.arange(self.width + steps + 1)[None]
        cos, sin = self.model.model.rotary_emb(self.values[0], span)
        self.cos, self.sin = cos[0], sin[0]
        self.bias: Tensor | None = None
        if not bool(mask.all()):
            hidden = F.pad(~mask, (0, steps)).repeat_interleave(group, 0)
            self.bias = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None, None]

    def step(self, tokens: Tensor) -> Tensor:
        body = self.model.model
        cos, sin = self.cos[self.positions][:, None], self.sin[self.positions][:, None]
        x = body.embed_tokens.weight[tokens]
        for index, weights in enumerate(self.layers):
            x = torch.addmm(x, self._attended(index, weights, x, cos, sin), weights.out.T)
            gate, up = F.linear(self._unit(x), weights.gate_up).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate).mul_(up), weights.down.T)
        self.width += 1
        self.positions = self.positions + 1
        return F.linear(self._unit(x) * body.norm.weight, self.model.lm_head.weight)

    def _attended(self, index: int, weights: Weights, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Values mixed by attention (B, heads · size), before the output projection."""
        keys, values, end = self.keys[index], self.values[index], self.width + 1
        rows, heads, size = len(x), keys.shape[1], keys.shape[3]
        joined = F.linear(self._unit(x), weights.qkv, weights.bias).view(rows, -1, size)
        turned = _rotated(joined[:, :-heads], cos, sin)
        keys[:, :, self.width] = turned[:, -heads:]
        values[:, :, self.width] = joined[:, -heads:]
        scores = turned[:, :-heads].unflatten(1, (heads, -1)) @ keys[:, :, :end].transpose(-1, -2)
        if self.bias is not None:
            scores = scores + self.bias[..., :end]
        return (scores.softmax(-1) @ values[:, :, :end]).reshape(rows, -1)

    def _unit(self, x: Tensor) -> Tensor:
        """RMS norm without its weight."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.model.config.rms_norm_eps)

    def keep(self, rows: Tensor) -> None:
        self.keys = [k[rows] for k in self.keys]
        self.values = [v[rows] for v in self.values]
        self.positions = self.positions[rows]
        if self.bias is not None:
            self.bias = self.bias[rows]


def _joined(layer: Any) -> Weights:
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    scales = (attention.scaling, 1.0, 1.0)
    qkv = torch.cat([p.weight * s for p, s in zip(projections, scales, strict=True)])
    bias = None
    if attention.q_proj.bias is not None:
        bias = torch.cat([p.bias * s for p, s in zip(projections, scales, strict=True)])
    gate_up = torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight))
    return Weights(
        qkv=qkv * layer.input_layernorm.weight,
        bias=bias,
        out=attention.o_proj.weight,
        gate_up=gate_up * layer.post_attention_layernorm.weight,
        down=mlp.down_proj.weight,
    )


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of (B, heads, size) by the tables (B, 1, size)."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin
