"""Decoding of models of the Llama shape in torch, from their weights, without the overhead of a model's own forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel


class _LayerWeights(NamedTuple):
    """Matrices of one layer, concatenated where they read the same input, with constant factors folded in.

    qkv (and its bias, a column): query, key and value rows, the queries times the attention's scale, all times
    the weight of the norm before them and √(hidden size), which `_unit` leaves out. gate_up: likewise.
    out and down: as they are.
    """

    qkv: Tensor
    bias: Tensor | None
    out: Tensor
    gate_up: Tensor
    down: Tensor


def fits(model: PreTrainedModel) -> bool:
    """Whether the model is an unadapted float32 Llama or Qwen2 on the CPU."""
    if type(model).__name__ not in ("LlamaForCausalLM", "Qwen2ForCausalLM") or model.device.type != "cpu":
        return False
    config, layer = model.config, model.model.layers[0]
    linear = (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.up_proj, layer.mlp.down_proj, model.lm_head)
    plain = all(type(m) is nn.Linear for m in linear) and all(m.bias is None for m in linear[1:])
    windowed = getattr(config, "use_sliding_window", False)
    return plain and model.dtype == torch.float32 and config.hidden_act == "silu" and not windowed


class LlamaDecoder:
    """Models of the Llama shape, computed from their weights.

    Per layer: RMS norm, q/k/v, rotary positions, attention over the prompt and over the row's own tokens with
    one softmax over both (query heads grouped on their key-value head), output projection, RMS norm, SwiGLU.

    Hidden states are (features, rows): a product of weights with so few columns runs two to three times as fast as
    rows times transposed weights, and needs no packing. Keys and values of a prompt are held once for its group,
    (P, H, S, head size) with H key-value heads; those of the completions are preallocated, (P, H, G, steps, head
    size). Once rows have left, a group keeps as many places as the fullest has rows: `places` (P·G,) is the
    row in each place, `found` (B,) the place of each row; both None while places are rows.
    """

    light = False

    def __init__(self, model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int):
        body: Any = model.model
        config, prompts = model.config, len(ids)
        self.heads, self.size = config.num_key_value_heads, body.layers[0].self_attn.head_dim
        self.embedding = body.embed_tokens.weight
        self.layers = [_fused(layer, config.hidden_size**0.5) for layer in body.layers]
        self.head: Tensor = model.lm_head.weight * (body.norm.weight * config.hidden_size**0.5)
        self.floor = config.hidden_size * config.rms_norm_eps
        self.rotation = rotation(body.rotary_emb, self.head, ids.shape[1] + steps + 1)
        self.prompt: list[tuple[Tensor, Tensor]] = []
        last = self._read(ids, mask)
        self.logits = torch.mm(self.head, last).T.repeat_interleave(group, 0)
        self.positions = mask.sum(-1).repeat_interleave(group)
        self.bias: Tensor | None = None
        if not bool(mask.all()):
            self.bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)[:, None, None]  # (P, 1, 1, S)
        self.shape, self.written = (prompts, self.heads, group), 0
        own = (prompts * self.heads * group, steps, self.size)
        self.own = [(torch.empty(own), torch.empty(own)) for _ in self.layers]
        self.places: Tensor | None = None
        self.found: Tensor | None = None

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each rollout (rows,); the logits after it, (rows, V)."""
        last = self._through(tokens, self.positions, self._mix)
        self.written += 1
        self.positions = self.positions + 1
        return torch.mm(self.head, last).T

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        prompts, heads, group = self.shape
        row = rows if self.found is None else self.found[rows]
        prompt, inside = row // group, row % group
        counts = torch.bincount(prompt, minlength=prompts)
        going, width = counts.nonzero()[:, 0], int(counts.max())
        # rows stay in order, so those of a prompt are neighbours and fill its places from the first on
        rank = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[prompt]
        slots = ((counts > 0).cumsum(0) - 1)[prompt] * width + rank
        places = torch.zeros(len(going) * width, dtype=torch.long).index_put_((slots,), torch.arange(len(rows)))
        index = (going[:, None], slice(None), inside[places].unflatten(0, (-1, width)), slice(self.written))
        self.own = [(self._moved(k, index), self._moved(v, index)) for k, v in self.own]
        self.prompt = [(_taken(k, going, heads), _taken(v, going, heads)) for k, v in self.prompt]
        self.bias = None if self.bias is None else self.bias[going]
        self.positions = self.positions[rows]
        self.shape = (len(going), heads, width)
        self.places, self.found = (places, slots) if len(places) > len(rows) else (None, None)

    def _moved(self, own: Tensor, index: tuple[Any, ...]) -> Tensor:
        """Keys or values of the completions at the indices (prompt, head, place, time), with room for all steps."""
        written = own.unflatten(0, self.shape)[index].transpose(1, 2).flatten(0, 2)  # indexing puts (P, G) first
        moved = torch.empty(len(written), *own.shape[1:])
        moved[:, : self.written] = written
        return moved

    def _read(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Read the prompts (P, S) and keep their keys and values; (hidden size, P) after the last norm."""
        past = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril() & mask[:, None]
        blocked = torch.zeros(past.shape).masked_fill(~past, torch.finfo(torch.float32).min)[:, None]

        def mix(index: int, turned: Tensor, values: Tensor) -> Tensor:
            q, k, v = (
                projection.unflatten(-1, ids.shape).permute(2, 0, 3, 1)
                for projection in (turned[: -self.heads], turned[-self.heads :], values)
            )
            self.prompt.append((k.flatten(0, 1).contiguous(), v.flatten(0, 1).contiguous()))
            mixed = F.scaled_dot_product_attention(q, k, v, blocked, scale=1.0, enable_gqa=q.shape[1] > self.heads)
            return mixed.permute(1, 3, 0, 2).reshape(-1, ids.numel())

        positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
        return self._through(ids.flatten(), positions.flatten(), mix).unflatten(-1, ids.shape)[..., -1]

    def _through(self, tokens: Tensor, positions: Tensor, mix: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
        """All layers on n tokens; (hidden size, n) after the last norm.

        `mix(layer, q and k (heads, size, n), v (H, size, n))` is the attention, (heads · size, n).
        """
        cos, sin = self.rotation[..., positions]
        x = self.embedding[tokens].T.contiguous()
        for index, weights in enumerate(self.layers):
            joined = _product(weights.qkv, self._unit(x), weights.bias).unflatten(0, (-1, self.size))
            turned = _rotated(joined[: -self.heads], cos, sin)
            x = torch.addmm(x, weights.out, mix(index, turned, joined[-self.heads :]))
            gate, up = torch.mm(weights.gate_up, self._unit(x)).chunk(2)
            x = torch.addmm(x, weights.down, F.silu(gate).mul_(up))
        return self._unit(x)

    def _mix(self, index: int, turned: Tensor, values: Tensor) -> Tensor:
        """One token's attention over its prompt and its completion, after its key and value have joined that."""
        if self.places is not None:
            turned, values = turned[..., self.places], values[..., self.places]
        (prompts, heads, group), now = self.shape, self.written
        (keys, cached), (prompt_keys, prompt_values) = self.own[index], self.prompt[index]
        split = (heads, -1, self.size, prompts, group)
        queries = turned[:-heads].view(split).permute(3, 0, 4, 1, 2).reshape(prompts * heads, -1, self.size)
        for target, projection in ((keys, turned[-heads:]), (cached, values)):
            target[:, now].view(prompts, heads, group, self.size).copy_(
                projection.view(split)[:, 0].permute(2, 0, 3, 1)
            )
        shared = torch.bmm(queries, prompt_keys.mT)
        if self.bias is not None:
            shared.unflatten(0, (prompts, heads)).add_(self.bias)
        rows = (len(keys), -1)
        own = torch.bmm(queries.view(*rows, self.size), keys[:, : now + 1].mT)
        width = shared.shape[-1]
        weights = torch.cat((shared.view(*rows, width), own), -1).softmax(-1)
        mixed = torch.bmm(weights.view(*queries.shape[:2], -1)[..., :width], prompt_values)
        mixed = torch.baddbmm(mixed.view(*rows, self.size), weights[..., width:], cached[:, : now + 1])
        mixed = mixed.view(prompts, heads, group, -1, self.size).permute(1, 3, 4, 0, 2).reshape(-1, prompts * group)
        return mixed if self.found is None else mixed[:, self.found]

    def _unit(self, x: Tensor) -> Tensor:
        """RMS norm of columns without its weight, over √(hidden size): x / √(‖x‖² + ε · hidden size)."""
        return x * (x.square().sum(0, keepdim=True) + self.floor).rsqrt_()


def _fused(layer: Any, scale: float) -> _LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    scales = (attention.scaling, 1.0, 1.0)
    bias = None
    if attention.q_proj.bias is not None:
        bias = torch.cat([p.bias * s for p, s in zip(projections, scales, strict=True)])[:, None]
    before, after = (norm.weight * scale for norm in (layer.input_layernorm, layer.post_attention_layernorm))
    return _LayerWeights(
        qkv=_joined([(p.weight, before * s) for p, s in zip(projections, scales, strict=True)]),
        bias=bias,
        out=attention.o_proj.weight,
        gate_up=_joined([(mlp.gate_proj.weight, after), (mlp.up_proj.weight, after)]),
        down=mlp.down_proj.weight,
    )


def _joined(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Matrices (n, hidden size), each times a row of factors, on top of each other."""
    joined = torch.empty(sum(len(weight) for weight, _ in parts), parts[0][0].shape[1])
    start = 0
    for weight, factors in parts:
        torch.mul(weight, factors, out=joined[start : start + len(weight)])
        start += len(weight)
    return joined


def _product(weights: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(weights, x) if bias is None else torch.addmm(bias, weights, x)


def _taken(x: Tensor, prompts: Tensor, heads: int) -> Tensor:
    """The rows of these prompts from x (P·H, …); x itself where they are all."""
    return x if len(x) == len(prompts) * heads else x.unflatten(0, (-1, heads))[prompts].flatten(0, 1)


def rotation(rotary: Any, like: Tensor, positions: int) -> Tensor:
    """Cosines, and sines with the sign that the rotated half takes, (2, head size, positions)."""
    cos, sin = (table[0].T for table in rotary(like, torch.arange(positions)[None]))
    half = len(sin) // 2
    return torch.stack((cos, torch.cat((-sin[:half], sin[half:]))))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of (heads, size, n) by the tables of `rotation`, (size, n)."""
    return torch.addcmul(x * cos, x.roll(x.shape[1] // 2, 1), sin)
