"""Every rollout's score from one backward pass: each layer's inputs a and back-propagated gradients b.

Rollouts do not interact, so one backward of Σ_{i,t} m_{i,t} log π(y_{i,t}) gives, at a linear layer,

    S_i = Σ_t b_{i,t} a_{i,t}ᵀ    (the gradient of Σ_t m_{i,t} log π(y_{i,t}), one matrix per rollout)

With unit weights m that is the score s_i = ∇ log π(y_i); any gradient Σ_i u_i s_i is then a weighted
sum of what is already there. Weights that vary along a rollout need a backward of their own, since b
carries the sum over later tokens.

`stream` runs that pass and hands each parameter's `Score` to a visitor as soon as its last use has
been seen, then forgets it, so the factors of all layers are never held at once. A weight shared by
several layers (an embedding tied to the head) is handed over once, with all its uses: the cross
terms are exact. Linear layers, GPT-2's transposed ones and embeddings are measured through their
factors; biases and the vectors of norms by their per-rollout gradients. Adapters of low rank are
linear layers. Other trainable parameters (convolutions, stacked experts) are `left_out`, by name.

Blocks are recomputed in the backward pass (see `recompute`), unless the model checkpoints its activations
already, which works as well. In bfloat16 products are taken in float32.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grposcope.errors import UserError
from grposcope.geometry import background, checkpointing, hooks, memory
from grposcope.geometry.score import Score
from grposcope.records import Rollouts

T = TypeVar("T")

TOGETHER = 32
"""Tokens whose probabilities are held at a time."""


@dataclass(frozen=True)
class TokenView:
    """What the logits say of every token, all (B, T), 0 where masked.

    logp: log π(y_t). norms: ‖e_y − π‖, the norm of the token's score at the logits.
    """

    logp: Tensor
    norms: Tensor


@dataclass
class Factors:
    """A model made ready to be measured, by `attach`.

    measured: parameters that will be handed over, by name. left_out: trainable ones that will not.
    bytes_per_token: what is kept for the backward pass, seen in the last pass.
    error: relative error of the self-check, NaN where it was not made; worst: the largest one of a
    single parameter, and its name.
    """

    model: Any
    temperature: float
    measured: dict[str, nn.Parameter]
    left_out: tuple[str, ...]
    bytes_per_token: float = math.nan
    error: float = math.nan
    worst: tuple[str, float] = ("", math.nan)
    _owners: hooks.Owners = field(default_factory=dict)

    @property
    def share_left_out(self) -> float:
        """Share of the trainable parameters that are not measured."""
        out = sum(dict(self.model.named_parameters())[name].numel() for name in self.left_out)
        return out / max(out + sum(p.numel() for p in self.measured.values()), 1)

    def oriented(self, name: str, array: Tensor) -> Tensor:
        """A parameter's weights or gradient as outputs × inputs (R, C); GPT-2 keeps them the other way round."""
        return hooks.oriented(self._owners[name], array)

    def stream(
        self,
        rollouts: Rollouts,
        visit: Callable[[Score], T],
        weights: Tensor | None = None,
        between: Callable[[Tensor, TokenView], None] | None = None,
        keep: Callable[[T], None] | None = None,
    ) -> TokenView:
        """One forward and one backward of Σ weights · log π; `visit` sees every parameter once.

        keep: gets what `visit` returns, in order; `visit` may then be called in other threads (see `beside`).
        weights: (B, T), by default 1 on every token. between sees, after the forward pass, the tokens' scores
        e_y − π at the logits (B, K, V), those of the T tokens in the places [-T-1:-1], the other places
        meaningless, and the token view. The order is that of the backward pass, last layer
        first, then the vectors. Scores may hold NaN: see `Score.check_finite`.
        """
        mask = rollouts.mask
        given = mask.to(torch.float32) if weights is None else weights.where(mask, 0.0)
        blocks = checkpointing.blocks(self.model)
        inside = {module for block in blocks for module in block.modules()}
        own = {p.untyped_storage().data_ptr() for p in self.model.parameters()}
        with (
            _checkpointing(self.model),
            hooks.patched(self.model, self.measured, self._owners, inside) as collect,
            checkpointing.recomputed(blocks),
        ):
            with memory.saved_bytes(own) as saved:
                view, total = _forward(self.model, rollouts, given, self.temperature, between)
            self.bytes_per_token = (saved() + collect.kept_bytes()) / _tokens(rollouts)
            with background.beside(visit, keep, mask.device) if keep else nullcontext(visit) as collect.visit:
                total.backward()
                collect.finish()
        return view


def _tokens(rollouts: Rollouts) -> int:
    """Places of a batch, padding included."""
    return rollouts.prompt_ids.numel() + rollouts.tokens.numel()


def attach(model: Any, rollouts: Rollouts | None = None, temperature: float = 1.0) -> Factors:
    """Find what can be measured, and check the factors against autograd on a few tokens of `rollouts`.

    UserError where the model has no layer of a known kind, or where the two gradients disagree.
    """
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None and parameter.requires_grad:
                owners.setdefault(id(parameter), []).append((module, key))
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    measured = {name: p for name, p in trained.items() if all(hooks.known(*owner) for owner in owners[id(p)])}
    left_out = tuple(name for name in trained if name not in measured)
    if not any(p.dim() == 2 for p in measured.values()):
        raise UserError(
            "the model has no trainable linear layer or embedding to measure (nn.Linear, GPT-2's Conv1D, "
            "nn.Embedding); unfreeze some weights or use another model"
        )
    factors = Factors(model, temperature, measured, left_out, _owners={n: owners[id(p)] for n, p in measured.items()})
    if rollouts is not None:
        _check(factors, rollouts)
    return factors


def _check(factors: Factors, rollouts: Rollouts, most: int = 2) -> None:
    """Compare Σ w ∇log π from the factors with autograd's, on two rollouts of a few tokens and uneven weights.

    The factors of a few tokens are small and wait; autograd's gradients are as large as the model and do not.
    """
    few = _excerpt(rollouts, most)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(few.mask.shape, generator=generator).to(few.mask.device).where(few.mask, 0.0)
    waiting: dict[str, Score] = {}

    def wait(score: Score) -> None:
        score.check_finite()
        waiting[score.name] = score

    factors.stream(few, wait, weights)
    off: dict[str, float] = {}
    size: dict[str, float] = {}
    missing: list[str] = []

    def compare(name: str, gradient: Tensor) -> None:
        """Squared sizes of autograd's gradient and of the difference, of one parameter; the gradient is used up."""
        score = waiting.pop(name, None)
        if score is not None:
            theirs = factors.oriented(name, gradient)
            size[name] = _square(theirs)
            off[name] = _square(score.subtracted_from(theirs))
        elif name in factors.measured and bool(gradient.any()):
            missing.append(name)

    own = {p.untyped_storage().data_ptr() for p in factors.model.parameters()}
    with _checkpointing(factors.model), _gradients_to(factors.model, compare):
        with memory.saved_bytes(own) as saved:
            _, total = _forward(factors.model, few, weights, factors.temperature)
        total.backward()
    for name, score in waiting.items():  # autograd has no gradient of these
        off[name], size[name] = _square(score.dense()), 0.0
    blocks = len(checkpointing.blocks(factors.model))
    factors.bytes_per_token += saved() / _tokens(few) / blocks if blocks else 0.0  # one block is recomputed at a time
    total_size = math.fsum(size.values())
    factors.error = math.sqrt(math.fsum(off.values()) / total_size) if total_size else math.nan
    relative = {name: math.sqrt(off[name] / size[name]) for name in off if size[name] > 1e-12 * total_size}
    factors.worst = max(relative.items(), key=lambda item: item[1], default=("", math.nan))
    allowed = 0.1 if factors.model.dtype in (torch.bfloat16, torch.float16) else 1e-3
    if missing or not factors.error <= allowed:
        where = missing[0] if missing else factors.worst[0]
        raise UserError(
            f"the gradient put together from the layers differs from autograd's by {factors.error:.1e} (relative), "
            f"most at {where}: this model uses its weights in a way that is not measured; freeze that layer"
        )


def _square(array: Tensor) -> float:
    """Squared Frobenius norm, a row at a time, which several threads can do."""
    return float(torch.linalg.vector_norm(array, dim=-1).double().square().sum())


@contextmanager
def _gradients_to(model: nn.Module, visit: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Hand autograd's gradient of each parameter over as soon as it is there, and forget it; old ones stay."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = {name: p.grad for name, p in trained.items()}

    def hook(name: str) -> Callable[[Tensor], None]:
        def take(parameter: Tensor) -> None:
            gradient, parameter.grad = parameter.grad, None
            assert gradient is not None
            visit(name, gradient)

        return take

    with ExitStack() as stack:
        for name, parameter in trained.items():
            parameter.grad = None
            stack.callback(setattr, parameter, "grad", before[name])
            stack.callback(parameter.register_post_accumulate_grad_hook(hook(name)).remove)
        yield


def _excerpt(rollouts: Rollouts, most: int) -> Rollouts:
    """The first rollout and the shortest, cut to the last and first `most` tokens of prompt and completion."""
    lengths = rollouts.lengths
    rows = torch.stack((lengths.new_tensor(0), lengths.clamp(min=1).argmin()))
    mask = rollouts.mask[rows, :most]
    if not bool(mask.any()):
        rows = torch.stack((lengths.argmax(), lengths.argmax()))
        mask = rollouts.mask[rows, :most]
    return Rollouts(
        prompt_ids=rollouts.prompt_ids[rows][:, -most:],
        prompt_mask=rollouts.prompt_mask[rows][:, -most:],
        tokens=rollouts.tokens[rows, :most],
        mask=mask,
        logp=rollouts.logp[rows, :most],
        entropy=rollouts.entropy[rows, :most],
        truncated=rollouts.truncated[rows],
        rewards=rollouts.rewards.new_zeros(1, 2),
    )


def _forward(
    model: Any,
    rollouts: Rollouts,
    weights: Tensor,
    temperature: float,
    between: Callable[[Tensor, TokenView], None] | None = None,
) -> tuple[TokenView, Tensor]:
    """The token view and Σ weights · log π, from whole rows [prompt, completion] with nothing shared between them."""
    start = rollouts.prompt_ids.shape[1] - int(rollouts.prompt_mask.sum(-1).max())
    width = rollouts.tokens.shape[1]
    whole = F.pad(rollouts.prompt_mask[:, start:].long(), (0, width), value=1)
    with torch.enable_grad():
        logits = model(
            input_ids=torch.cat((rollouts.prompt_ids[:, start:], rollouts.tokens), 1),
            attention_mask=whole,
            position_ids=(whole.cumsum(-1) - 1).clamp(min=0),
            use_cache=False,
            logits_to_keep=width + 1,
        ).logits
        logp, norms = _Picked.apply(logits, rollouts.tokens, rollouts.mask, temperature or 1.0)
        total = (logp * weights.to(logp)).sum()
    view = TokenView(logp.detach(), norms)
    if between is not None:
        between(logits.detach(), view)
    return view, total


class _Picked(torch.autograd.Function):
    """log π of the tokens taken and their score norms, a few tokens at a time.

    The logits (B, K, V) are overwritten by the scores e_y − π, which the backward pass needs and `between` looks
    at, so that there is never a second array of that size. Autograd notices if anyone else still wanted them.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        kind = torch.promote_types(logits.dtype, torch.float32)
        logp = torch.zeros(tokens.shape, dtype=kind, device=logits.device)
        norms, scores, width = torch.zeros_like(logp), logits.detach(), tokens.shape[1]
        for row, at in itertools.product(range(len(logits)), range(0, width, TOGETHER)):
            piece = slice(at, min(at + TOGETHER, width))
            chosen, place = tokens[row, piece][:, None], scores[row, -width - 1 : -1][piece]
            logs = (place.to(kind) / temperature if temperature != 1 else place.to(kind)).log_softmax(-1)
            logp[row, piece] = logs.gather(-1, chosen)[:, 0]
            chances = logs.exp_()
            # ‖e_y − π‖² = (1 − π_y)² + Σ_{v≠y} π_v²; written without 1 − 2π_y + Σπ², which cancels
            rest = torch.linalg.vector_norm(chances.scatter_(-1, chosen, 0.0), dim=-1)
            miss = -torch.expm1(logp[row, piece])
            norms[row, piece] = torch.hypot(miss, rest)
            torch.neg(chances.scatter_(-1, chosen, -miss[:, None]), out=chances)
            place.copy_(chances)
        logp, norms = logp.where(mask, 0.0), norms.where(mask, 0.0)
        ctx.save_for_backward(scores, mask)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(norms)
        return logp, norms

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scores, mask = ctx.saved_tensors
        weights = F.pad(gradients[0].where(mask, 0.0) / ctx.temperature, (scores.shape[1] - mask.shape[1] - 1, 1))
        for row in range(len(scores)):
            scores[row] *= weights[row][:, None].to(scores)
        return scores, None, None, None


@contextmanager
def _checkpointing(model: Any) -> Iterator[None]:
    """Training mode while activations are to be recomputed, which models do in that mode only; no dropout is on."""
    was, wanted = model.training, any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    if was == wanted:
        yield
        return
    model.train(wanted)
    try:
        yield
    finally:
        model.train(was)
