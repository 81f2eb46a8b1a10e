"""Log-probabilities of completions under a model of the Llama shape, and the gradient of a weighted sum of them.

A prompt is computed once for its group, and so are completions that are the same token by token, whose weights add up.
The head works on a few completions at a time: logits, log-probabilities, the weights that follow from them, and at once
the gradient, so that never all logits exist.

Forward and backward pass of models of the Llama shape, written out by hand.

What autograd would do over the model's own forward, with the same result to round-off, at less cost:

- tokens lie in one array without padding, so that no matrix product reads padding;
- completions read the keys and values of their prompt's pass, so that a prompt is computed once for its group, and
  attention costs T·(S + T) per completion instead of the square of a row that holds the whole group;
- products of a backward pass are added straight to `.grad`, and only what a layer cannot cheaply make again is kept.

Per layer, with r = 1/√(mean x² + ε) of each token, ⊙ by element and attention Att over prompt and past:

    q, k, v = W (x r ⊙ g₁)    y = x + W_o Att(q, k, v)    out = y + W_d (silu(W_g (y r ⊙ g₂)) ⊙ W_u (y r ⊙ g₂))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, starmap
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from grposcope.lab.no_gradient import no_gradient
from grposcope.lab.rollout_batch import RolloutBatch

HEAD = 8_000_000
"""Logits that exist at once, unless a single completion has more."""

Weigh = Callable[[Tensor, Tensor], Tensor]
"""The weights ∂L/∂log π (b, T) of some rows (b,) of a batch, from these and their log-probabilities (b, T)."""


class Passes:
    """Passes of a model that `fits` says yes to."""

    def __init__(self, model: PreTrainedModel):
        self.model = model

    @property
    def bytes_per_token(self) -> int:
        """Memory that a pass keeps for its backward pass, per token."""
        return _kept_bytes(self.model)

    @no_gradient
    def logprobs(self, rollouts: RolloutBatch, temperature: float, micro_batch: int) -> tuple[Tensor, Tensor]:
        """log π and Σ_v π_v² of every token of the batch, (B, T), 0 where masked; `micro_batch` rollouts at a time."""
        rows = torch.arange(len(rollouts.mask), device=rollouts.mask.device)
        return self._through(rollouts, rows, temperature, micro_batch, None, None)

    @no_gradient
    def accumulate(
        self,
        rollouts: RolloutBatch,
        rows: Tensor,
        temperature: float,
        micro_batch: int,
        weigh: Weigh,
        bonus: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Add the gradient of Σ w log π − Σ bonus · H over the rows (r,), in ascending order, to `.grad`.

        weigh: gives the weights w. bonus (B, T): coefficients of the entropies, or None. Returns log π (r, T) and the
        entropies in nats (r, T), 0 where masked, the latter 0 everywhere without a bonus.
        """
        return self._through(rollouts, rows, temperature, micro_batch, weigh, bonus)

    def _through(
        self,
        rollouts: RolloutBatch,
        rows: Tensor,
        temperature: float,
        micro_batch: int,
        weigh: Weigh | None,
        bonus: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """`accumulate`, or `logprobs` of some rows without weights."""
        same = _same(rollouts, rows)
        first, inverse = same[rows].unique(return_inverse=True)
        work = _Work(_ModelParameters(self.model), rollouts, temperature, weigh, bonus, same)
        counts = (first // rollouts.groups[1]).unique_consecutive(return_counts=True)[1].tolist()
        bundles = first.split([sum(counts[run]) for run in _runs(counts, micro_batch)])
        parts = [batch for bundle in bundles for batch in work.bundle(bundle, micro_batch)]
        return torch.cat([logp for logp, _ in parts])[inverse], torch.cat([entropy for _, entropy in parts])[inverse]


def _same(rollouts: RolloutBatch, rows: Tensor) -> Tensor:
    """For each of the rows (r,), the first of them in its group with the same completion; (B,), -1 for all others."""
    seen: dict[tuple[int, ...], int] = {}
    group, mask = rollouts.groups[1], rollouts.mask[rows]
    completions = rollouts.tokens[rows].masked_fill(~mask, -1).tolist()
    first = [seen.setdefault((row // group, *ids), row) for row, ids in zip(rows.tolist(), completions, strict=True)]
    same = torch.full((len(rollouts.mask),), -1, device=rows.device)
    same[rows] = torch.tensor(first, device=rows.device)
    return same


@dataclass(frozen=True)
class _Work:
    """One batch on its way through the passes of a model, with gradients if there are weights.

    same (B,): the row that stands for each, the first of its group with the same completion; only these are passed on.
    """

    weights: _ModelParameters
    rollouts: RolloutBatch
    temperature: float
    weigh: Weigh | None
    bonus: Tensor | None
    same: Tensor

    def bundle(self, rows: Tensor, micro_batch: int) -> list[tuple[Tensor, Tensor]]:
        """log π and entropies of the rows (b,), whose prompts are computed once, `micro_batch` rows at a time."""
        group = self.rollouts.groups[1]
        prompts, owner = (rows // group).unique_consecutive(return_inverse=True)
        before = _Pass(self.weights, _prompts(self.rollouts, prompts * group), keep=self.weigh is not None)
        returned = torch.zeros_like(before.hidden)
        out = []
        for batch, own in zip(rows.split(micro_batch), owner.split(micro_batch), strict=True):
            after = _Pass(self.weights, _completions(self.rollouts, batch), (before, own), keep=self.weigh is not None)
            hidden = torch.cat((before.hidden, after.hidden))
            positions = self._places(batch, before.stretch.mask.sum(-1).cumsum(0)[own] - 1, len(returned))
            gradient = torch.zeros_like(hidden)
            lengths = self.rollouts.mask[batch].sum(-1).tolist()
            out += [
                self._head(batch[some], positions[some], hidden, gradient)
                for some in _runs(lengths, HEAD // len(self.weights.head))
            ]
            if self.weigh is not None:
                after.backward(gradient[len(returned) :])
                returned += gradient[: len(returned)]
        if self.weigh is not None:
            before.backward(returned)
        return out

    def _places(self, rows: Tensor, ends: Tensor, start: int) -> Tensor:
        """Where the predecessor of each token lies, (b, T): at the end (b,) of the prompt, or from `start` on."""
        mask = self.rollouts.mask[rows]
        slots = torch.zeros(mask.shape, dtype=torch.long)
        slots[:, 0] = ends
        inputs = mask[:, 1:]
        slots[:, 1:][inputs] = torch.arange(start, start + int(inputs.sum()))
        return slots

    def _head(self, rows: Tensor, slots: Tensor, hidden: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """log π and entropies (b, T) of some rows; with weights their gradient is added to `gradient` of `hidden`.

        Without weights the second is Σ_v π_v².
        """
        mask, weight = self.rollouts.mask[rows], self.weights.head
        tokens, slots = self.rollouts.tokens[rows][mask][:, None], slots[mask]
        read = hidden[slots]
        logits = read @ weight.T
        if self.temperature != 1:
            logits /= self.temperature
        logits -= logits.amax(-1, keepdim=True)
        picked = logits.gather(-1, tokens)
        shifted = None if self.bonus is None else logits.clone()
        total = logits.exp_().sum(-1, keepdim=True)
        level = total.log()
        logp, entropy = (torch.zeros(mask.shape, dtype=hidden.dtype) for _ in range(2))
        logp[mask] = (picked - level)[:, 0]
        if shifted is not None:
            shifted -= level
            logits /= total
            entropy[mask] = -torch.linalg.vecdot(logits, shifted)
        if self.weigh is None:
            entropy[mask] = torch.linalg.vecdot(logits, logits) / total[:, 0].square()
            return logp, entropy
        every, standing = (self.same[:, None] == rows).nonzero(as_tuple=True)  # rows, and which of `rows` is theirs
        factor = _summed(self.weigh(every, logp[standing]), standing, mask).to(hidden.dtype) / self.temperature
        if shifted is not None and self.bonus is not None:
            rise = _summed(self.bonus[every], standing, mask).to(hidden.dtype) / self.temperature
            logits *= shifted.add_(entropy[mask][:, None]).mul_(rise).sub_(factor)
        else:
            logits *= -factor / total
        logits.scatter_add_(-1, tokens, factor)  # now the gradient of the products `read` times `weight`
        gradient.index_add_(0, slots, logits @ weight)
        _add(weight, logits, read)
        return logp, entropy


def _summed(weights: Tensor, standing: Tensor, mask: Tensor) -> Tensor:
    """Sums of weights (m, T) over the rows for which each row of the mask (b, T) stands, where that is set, (n, 1)."""
    return weights.new_zeros(mask.shape).index_add_(0, standing, weights)[mask][:, None]


def _prompts(rollouts: RolloutBatch, rows: Tensor) -> _Stretch:
    """The prompts of the rows (b,)."""
    mask_of_prompts = rollouts.prompt_mask[rows]
    lengths = mask_of_prompts.sum(-1)
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    return _Stretch(rollouts.prompt_ids[rows][mask_of_prompts], mask.nonzero()[:, 1], mask)


def _completions(rollouts: RolloutBatch, rows: Tensor) -> _Stretch:
    """The tokens of the rows' completions that predict a further one, which the last of each does not."""
    inputs = rollouts.mask[rows].sum(-1) - 1
    mask = torch.arange(max(1, int(inputs.max()))) < inputs[:, None]
    row, step = mask.nonzero(as_tuple=True)
    return _Stretch(rollouts.tokens[rows][row, step], rollouts.prompt_mask[rows].sum(-1)[row] + step, mask)


def _runs(sizes: Sequence[int], room: int) -> list[slice]:
    """Slices of neighbours whose sizes sum to at most `room`, as long as possible, of one item at least."""
    starts, filled = [0], 0
    for index, size in enumerate(sizes):
        if filled and filled + size > room:
            starts.append(index)
            filled = 0
        filled += size
    return [slice(*ends) for ends in pairwise([*starts, len(sizes)])]


FAMILIES = ("LlamaForCausalLM", "Qwen2ForCausalLM")


def fits(model: PreTrainedModel) -> bool:
    """Whether `_Pass` computes this model: an unadapted Llama or Qwen2 in full precision on the CPU."""
    if (
        type(model).__name__ not in FAMILIES
        or model.device.type != "cpu"
        or model.dtype not in (torch.float32, torch.float64)
    ):
        return False
    config, body = model.config, model.model
    rope = getattr(config, "rope_parameters", None) or {}
    windowed = getattr(config, "use_sliding_window", False)
    if config.hidden_act != "silu" or windowed or rope.get("rope_type", "default") in ("dynamic", "longrope"):
        return False
    plain: list[Any] = [model.lm_head]
    for layer in body.layers:
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        plain += [attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj]
        if any(type(m) is not nn.Linear or (m.bias is None) != (projections[0].bias is None) for m in projections):
            return False
    dtypes = {p.dtype for p in model.parameters()}
    return (
        all(type(m) is nn.Linear and m.bias is None for m in plain)
        and type(body.embed_tokens) is nn.Embedding
        and len(dtypes) == 1
    )


def _kept_bytes(model: PreTrainedModel) -> int:
    """Memory that a pass keeps for its backward pass, per token."""
    config = model.config
    attention = (2 * config.num_attention_heads + 2 * config.num_key_value_heads) * model.model.layers[
        0
    ].self_attn.head_dim
    numbers = 2 * config.hidden_size + attention + 2 * config.intermediate_size
    return int(numbers * config.num_hidden_layers * model.dtype.itemsize)


class _LayerParameters(NamedTuple):
    """Parameters of one layer; qkv and biases are those of queries, keys and values, biases may be empty."""

    norm: nn.Parameter
    qkv: tuple[nn.Parameter, ...]
    biases: tuple[nn.Parameter, ...]
    out: nn.Parameter
    mlp_norm: nn.Parameter
    gate: nn.Parameter
    up: nn.Parameter
    down: nn.Parameter


class _ModelParameters:
    """Parameters of a model and the sizes that its passes need: query and key-value heads of `size` numbers each."""

    def __init__(self, model: PreTrainedModel):
        body: Any = model.model
        self.embedding: nn.Parameter = body.embed_tokens.weight
        self.padding: int | None = body.embed_tokens.padding_idx
        self.layers = [_parameters(layer) for layer in body.layers]
        self.norm: nn.Parameter = body.norm.weight
        self.head: nn.Parameter = model.lm_head.weight
        self.rotary = body.rotary_emb
        attention = body.layers[0].self_attn
        self.size, self.scale = attention.head_dim, attention.scaling
        self.queries, self.keys = model.config.num_attention_heads, model.config.num_key_value_heads
        self.epsilon = model.config.rms_norm_eps


@dataclass(frozen=True)
class _Stretch:
    """n tokens of R sequences without padding.

    ids, position (n,), sequence by sequence. mask (R, W): where they lie when sequences are padded on the right.
    """

    ids: Tensor
    position: Tensor
    mask: Tensor


class _Kept(NamedTuple):
    """What the backward pass of a layer reads: x and y with 1/norm, attention's inputs and output, gate and up."""

    x: Tensor
    scale: Tensor
    attention: tuple[Tensor, Tensor, Tensor, Tensor]
    y: Tensor
    mlp_scale: Tensor
    gate: Tensor
    up: Tensor


class _Pass:
    """One forward pass over a stretch; `hidden` (n, C) is what the head reads.

    With `keep`, `backward` may be called once; it adds the gradient to `.grad` of the parameters. prefix: a pass over
    prompts, and the row of it that each sequence goes on from, (R,). A pass without prefix may be the prefix of others;
    their backward passes come before its own. Call both under `no_grad`.
    """

    def __init__(
        self,
        weights: _ModelParameters,
        stretch: _Stretch,
        prefix: tuple[_Pass, Tensor] | None = None,
        keep: bool = True,
    ):
        self.weights, self.stretch, self.prefix, self.keep = weights, stretch, prefix, keep
        full = len(stretch.ids) == stretch.mask.numel()
        self.places = None if full else stretch.mask.flatten().nonzero()[:, 0]
        x = weights.embedding[stretch.ids]
        cos, sin = weights.rotary(x, stretch.position[None])
        self.cos, self.sin = cos[0, :, None], sin[0, :, None]  # (n, 1, size)
        self.sin[..., : weights.size // 2].neg_()
        self.blocked = None if prefix is None else _blocked(prefix[0].stretch.mask[prefix[1]], stretch.mask, x)
        self.cache: list[tuple[Tensor, Tensor]] = []  # keys and values of each layer, (R, W, heads, size)
        self.returned: list[tuple[Tensor, Tensor]] = []  # their gradients from passes that had this one as prefix
        self.kept: list[_Kept] = []
        for index in range(len(weights.layers)):
            x = self._layer(index, x)
        self.last, self.last_scale = x, _inverse_norm(x, weights.epsilon)
        self.hidden = (x * self.last_scale).mul_(weights.norm)

    def backward(self, gradient: Tensor) -> None:
        """Add to `.grad` what a gradient of `hidden`, (n, C), comes to."""
        weights = self.weights
        x = _norm_backward(gradient, self.last, self.last_scale, weights.norm)
        for index in reversed(range(len(weights.layers))):
            x = self._layer_backward(index, x)
        ids = self.stretch.ids
        if weights.padding is not None:  # an embedding does not learn its padding
            x.masked_fill_((ids == weights.padding)[:, None], 0)
        if weights.embedding.grad is None:
            weights.embedding.grad = torch.zeros_like(weights.embedding)
        weights.embedding.grad.index_add_(0, ids, x)

    def _layer(self, index: int, x: Tensor) -> Tensor:
        weights = self.weights.layers[index]
        scale = _inverse_norm(x, self.weights.epsilon)
        q, k, v = self._projected(weights, (x * scale).mul_(weights.norm))
        if self.prefix is None:
            self.cache.append((k, v))
        else:
            prompts, owner = self.prefix
            before, q = prompts.cache[index], q.contiguous()  # keys and values are copied, so none stay twice
            k, v = (torch.cat((a[owner], b), 1) for a, b in zip(before, (k, v), strict=True))
        attention = self._attended(q, k, v)
        y = torch.addmm(x, self._packed(attention[-1].detach()).flatten(1), weights.out.T)
        mlp_scale = _inverse_norm(y, self.weights.epsilon)
        normed = (y * mlp_scale).mul_(weights.mlp_norm)
        gate, up = normed @ weights.gate.T, normed @ weights.up.T
        if self.keep:
            self.kept.append(_Kept(x, scale, attention, y, mlp_scale, gate, up))
        return torch.addmm(y, F.silu(gate).mul_(up), weights.down.T)

    def _layer_backward(self, index: int, gradient: Tensor) -> Tensor:
        """The gradient of a layer's input, from that of its output, which is overwritten."""
        weights, saved = self.weights.layers[index], self.kept.pop()
        sigmoid = saved.gate.sigmoid()
        switched, up = (
            saved.gate.mul_(sigmoid),
            saved.up,
        )  # in place from here on: new memory costs more than arithmetic
        active = gradient @ weights.down
        _add(weights.down, gradient, switched * up)
        slope = torch.lerp(switched, torch.ones((), dtype=up.dtype), sigmoid, out=sigmoid)  # s + z s (1 − s)
        gate, up = up.mul_(active).mul_(slope), active.mul_(switched)
        normed = (saved.y * saved.mlp_scale).mul_(weights.mlp_norm)
        _add(weights.gate, gate, normed)
        _add(weights.up, up, normed)
        inner = torch.addmm(gate @ weights.gate, up, weights.up)
        gradient += _norm_backward(inner, saved.y, saved.mlp_scale, weights.mlp_norm)
        q, k, v, out = saved.attention
        _add(weights.out, gradient, self._packed(out.detach()).flatten(1))
        mixed = self._padded((gradient @ weights.out).unflatten(1, (-1, self.weights.size)))
        inner = self._projected_backward(index, saved, torch.autograd.grad(out, (q, k, v), mixed))
        return gradient.add_(_norm_backward(inner, saved.x, saved.scale, weights.norm))

    def _projected(self, weights: _LayerParameters, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the padded sequences, (R, W, heads, size), the first two turned by position."""
        shape = self.weights
        ends = [0, *accumulate(matrix.shape[0] for matrix in weights.qkv)]
        joined = normed.new_empty(len(normed), ends[-1])
        for number, (matrix, columns) in enumerate(zip(weights.qkv, starmap(slice, pairwise(ends)), strict=True)):
            torch.mm(normed, matrix.T, out=joined[:, columns])
            if weights.biases:
                joined[:, columns] += weights.biases[number]
        heads = joined.unflatten(1, (-1, shape.size))
        _rotate(heads[:, : -shape.keys], self.cos, self.sin)
        q, k, v = self._padded(heads).split((shape.queries, shape.keys, shape.keys), 2)
        return q, k, v

    def _projected_backward(self, index: int, saved: _Kept, gradients: tuple[Tensor, ...]) -> Tensor:
        """The gradient of the normed input, (n, C), from that of the attention's inputs."""
        weights, (q, k, v) = self.weights.layers[index], gradients
        if self.prefix is not None:
            width = k.shape[1] - q.shape[1]
            prompts, owner = self.prefix
            prompts._return(index, owner, k[:, :width], v[:, :width])
            k, v = k[:, width:], v[:, width:]
        elif self.returned:
            k, v = (a + b for a, b in zip((k, v), self.returned[index], strict=True))
        turned = [_rotate(self._packed(turned), self.cos, -self.sin).flatten(1) for turned in (q, k)]
        parts = [*turned, self._packed(v).flatten(1)]
        normed = (saved.x * saved.scale).mul_(weights.norm)
        for matrix, gradient in zip(weights.qkv, parts, strict=True):
            _add(matrix, gradient, normed)
        for bias, gradient in zip(weights.biases, parts, strict=False):
            bias.grad = gradient.sum(0) if bias.grad is None else bias.grad.add_(gradient.sum(0))
        inner = parts[0] @ weights.qkv[0]
        return inner.addmm_(parts[1], weights.qkv[1]).addmm_(parts[2], weights.qkv[2])

    def _return(self, index: int, owner: Tensor, keys: Tensor, values: Tensor) -> None:
        """Take the gradients of this pass's keys and values in a layer from a pass that had it as prefix."""
        if not self.returned:
            self.returned = [(torch.zeros_like(k), torch.zeros_like(v)) for k, v in self.cache]
        for total, gradient in zip(self.returned[index], (keys, values), strict=True):
            total.index_add_(0, owner, gradient)

    def _attended(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Inputs of the attention and its output (R, W, heads, size), with the graph between them if it is kept."""
        with torch.set_grad_enabled(self.keep):
            q, k, v = (projection.detach().requires_grad_(self.keep) for projection in (q, k, v))
            out = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), self.blocked,
                is_causal=self.blocked is None, scale=self.weights.scale, enable_gqa=q.shape[2] > k.shape[2],
            )  # fmt: skip
            return q, k, v, out.transpose(1, 2)

    def _padded(self, x: Tensor) -> Tensor:
        """(n, …) as (R, W, …), zeros where there is no token."""
        shape = (*self.stretch.mask.shape, *x.shape[1:])
        if self.places is None:
            return x.view(shape)
        return x.new_zeros(self.stretch.mask.numel(), *x.shape[1:]).index_copy_(0, self.places, x).view(shape)

    def _packed(self, x: Tensor) -> Tensor:
        """(R, W, …) as (n, …)."""
        return x.flatten(0, 1) if self.places is None else x.flatten(0, 1)[self.places]


def _parameters(layer: Any) -> _LayerParameters:
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    return _LayerParameters(
        norm=layer.input_layernorm.weight,
        qkv=tuple(p.weight for p in projections),
        biases=tuple(p.bias for p in projections if p.bias is not None),
        out=attention.o_proj.weight,
        mlp_norm=layer.post_attention_layernorm.weight,
        gate=mlp.gate_proj.weight,
        up=mlp.up_proj.weight,
        down=mlp.down_proj.weight,
    )


def _blocked(before: Tensor, own: Tensor, like: Tensor) -> Tensor:
    """Mask added to scores, (R, 1, W, S + W): −∞ where a key is padding of the prefix (R, S) or comes later."""
    width = own.shape[1]
    later = torch.ones(width, width, dtype=torch.bool).triu(1).expand(len(own), -1, -1)
    hidden = torch.cat(((~before)[:, None].expand(-1, width, -1), later), -1)[:, None]
    return like.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)


def _inverse_norm(x: Tensor, epsilon: float) -> Tensor:
    """1/√(mean x² + ε) of each token, (n, 1)."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()


def _norm_backward(gradient: Tensor, x: Tensor, scale: Tensor, weight: nn.Parameter) -> Tensor:
    """Gradient of x from that of x r ⊙ g with r = `scale`, which is overwritten: r (g ⊙ d) − x r³ mean(x ⊙ g ⊙ d)."""
    product = gradient * x
    summed = scale[:, 0] @ product
    weight.grad = summed if weight.grad is None else weight.grad.add_(summed)
    along = (product @ weight)[:, None] * scale.pow(3).div_(x.shape[-1])
    return gradient.mul_(weight).mul_(scale).addcmul_(x, along, value=-1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn (n, heads, size) in place by position, given cos and sin with signs (n, 1, size); −sin turns back."""
    swapped = x.roll(x.shape[-1] // 2, -1)
    return x.mul_(cos).addcmul_(swapped, sin)


def _add(parameter: nn.Parameter, outer: Tensor, inner: Tensor) -> None:
    """Add the gradient of a matrix (out, in) whose products of `inner` (n, in) have the gradient `outer` (n, out)."""
    if parameter.grad is None:
        parameter.grad = outer.T @ inner
    else:
        parameter.grad.addmm_(outer.T, inner)
