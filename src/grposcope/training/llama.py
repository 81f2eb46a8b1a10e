"""The forward pass of Llama-shaped models, straight from their weights and differentiable.

The formulas are those of the Hugging Face modules whose weights it reads; what it leaves out is
their per-call overhead, which on small models is a good part of the time. Tests hold the two equal.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

Past = list[tuple[Tensor, Tensor]]
"""Keys and values of every layer, (B, heads, length, size) each."""


def fits(model: PreTrainedModel) -> bool:
    """Whether the model is an unadapted float32 Llama or Qwen2 on the CPU."""
    if type(model).__name__ not in ("LlamaForCausalLM", "Qwen2ForCausalLM") or model.device.type != "cpu":
        return False
    config: Any = model.config
    layer: Any = model.model.layers[0]
    linear = (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.up_proj, layer.mlp.down_proj, model.lm_head)
    plain = all(type(m) is nn.Linear for m in linear) and all(m.bias is None for m in linear[1:])
    windowed = getattr(config, "use_sliding_window", False)
    return plain and model.dtype == torch.float32 and config.hidden_act == "silu" and not windowed


def hidden(model: Any, ids: Tensor, positions: Tensor, seen: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
    """Final hidden states (B, L, width) of tokens `ids` (B, L), and the keys and values of all tokens so far.

    positions: (B, L), from 0. seen: (B, 1, L, K) bool, which of the K tokens so far, those of `past`
    first, each token attends to.
    """
    body = model.model
    x = F.embedding(ids, body.embed_tokens.weight)
    cos, sin = (table[:, None] for table in body.rotary_emb(x, positions))
    present: Past = []
    for index, layer in enumerate(body.layers):
        attention, mlp = layer.self_attn, layer.mlp
        z = _normed(x, layer.input_layernorm)
        query, key, value = (
            F.linear(z, p.weight, p.bias).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
            for p in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        if past is not None:
            key, value = torch.cat((past[index][0], key), 2), torch.cat((past[index][1], value), 2)
        present.append((key, value))
        grouped = query.shape[1] != key.shape[1]
        mixed = F.scaled_dot_product_attention(
            query, key, value, attn_mask=seen, scale=attention.scaling, enable_gqa=grouped
        )
        x = x + F.linear(mixed.transpose(1, 2).flatten(2), attention.o_proj.weight)
        z = _normed(x, layer.post_attention_layernorm)
        gated = F.silu(F.linear(z, mlp.gate_proj.weight)) * F.linear(z, mlp.up_proj.weight)
        x = x + F.linear(gated, mlp.down_proj.weight)
    return _normed(x, body.norm), present


def prompts(model: Any, ids: Tensor, mask: Tensor) -> tuple[Tensor, Past]:
    """`hidden` of prompts (P, S) padded on the left."""
    width = ids.shape[1]
    causal = torch.ones(width, width, dtype=torch.bool, device=ids.device).tril()
    # a padding token sees itself, so that no row of the attention is empty
    seen = (causal & mask[:, None, :]) | torch.eye(width, dtype=torch.bool, device=ids.device)
    return hidden(model, ids, (mask.long().cumsum(-1) - 1).clamp(min=0), seen[:, None])


def logits(model: Any, states: Tensor) -> Tensor:
    """Next-token logits of hidden states."""
    return F.linear(states, model.lm_head.weight)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding along the last axis, by tables that broadcast."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def _normed(x: Tensor, norm: Any) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.variance_epsilon) * norm.weight
