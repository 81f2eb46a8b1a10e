"""Every rollout's score from one backward pass: each layer's inputs a and back-propagated gradients b.

Rollouts do not interact, so one backward of Σ_{i,t} m_{i,t} log π(y_{i,t}) gives, at a linear layer,

    S_i = Σ_t b_{i,t} a_{i,t}ᵀ    (the gradient of Σ_t m_{i,t} log π(y_{i,t}), one matrix per rollout)

With unit weights m these are the scores s_i = ∇ log π(y_i), and any gradient Σ_i u_i s_i is a weighted sum of
them. Weights that vary along a rollout need a backward pass of their own, since b carries the sum over later tokens.

`attach` finds the parameters that can be measured and checks their factors against autograd. `stream` runs the pass
and gives each parameter's `Score` to a visitor once its last use was seen, then releases it, so the factors of all
layers are never held at once. A weight shared by several layers (an embedding tied to the head) is given once, with
all its uses: the cross terms are exact. Linear layers, GPT-2's transposed ones and embeddings are measured through
their factors; biases and the vectors of norms by their per-rollout gradients. Adapters of low rank are
linear layers. Other trainable parameters (convolutions, stacked experts, what a state-space layer uses outside of its
parts) are `left_out`, by name.

Blocks are recomputed in the backward pass (see `checkpointing`), unless the model checkpoints its activations
already, which works as well. In bfloat16 products are taken in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import checkpointing, hooks
from grposcope.instruments.gradient.logits import TokenScores, weighted_logp, without_padding
from grposcope.instruments.gradient.score import Score
from grposcope.lab import cpu
from grposcope.lab.policies import recomputes_activations
from grposcope.lab.rollout_arrays import Rollouts
from grposcope.lab.workers import ALONE, Workers

T = TypeVar("T")

DIRECTIONS = 4
"""Random vectors by which the self-check multiplies a gradient: they show less than 1 % of a difference once in 10⁷."""


class Refusal(UserError):
    """Why a model is not measured, raised while no pass is under way: the model is as it was before."""


@dataclass
class AttachedModel:
    """A model made ready by `attach` to be measured.

    measured: parameters whose scores `stream` gives, by name. left_out: the other trainable parameters.
    bytes_per_token: memory kept for the backward pass, as observed in the last pass.
    error: relative error of the self-check, NaN where it was not made; worst: the parameter with the largest
    relative error, and that error. half: whether the last pass computed in 16 bits, whatever the weights are kept in.
    """

    model: Any
    temperature: float
    measured: dict[str, nn.Parameter]
    left_out: tuple[str, ...]
    bytes_per_token: float = math.nan
    error: float = math.nan
    worst: tuple[str, float] = ("", math.nan)
    half: bool = False
    _owners: hooks.Owners = field(default_factory=dict)

    @property
    def share_left_out(self) -> float:
        """Share of the trainable parameters that are not measured."""
        out = sum(dict(self.model.named_parameters())[name].numel() for name in self.left_out)
        return out / max(out + self.entries, 1)

    @property
    def entries(self) -> int:
        """Number of entries of the measured parameters."""
        return sum(p.numel() for p in self.measured.values())

    def shape(self, name: str) -> tuple[int, int]:
        """Outputs and inputs (R, C) of a parameter, the shape of its scores."""
        return hooks.oriented_shape(self._owners[name], self.measured[name])

    def weights(self, name: str) -> Tensor:
        """A parameter's weights; those that are spread over several processes (FSDP2) are gathered."""
        return whole(self.measured[name].detach())

    def oriented(self, name: str, array: Tensor) -> Tensor:
        """A parameter's weights or gradient as outputs × inputs (R, C); GPT-2 keeps them the other way round."""
        return hooks.oriented(self._owners[name], array)

    def stream(
        self,
        rollouts: Rollouts,
        visit: Callable[[Score], T],
        weights: Tensor | None = None,
        between: Callable[[Tensor, TokenScores], None] | None = None,
        keep: Callable[[T], None] | None = None,
        workers: Workers = ALONE,
    ) -> TokenScores:
        """One forward and one backward pass of Σ weights · log π; `visit` is called once for every parameter.

        weights: (B, T), by default 1 on every token. between: called after the forward pass with the tokens' scores
        e_y − π at the logits (B, K, V), those of the T tokens in the places [-T-1:-1], the other places
        meaningless, and with the tokens. keep: is given the results of `visit`, in order; `visit` may then be called
        in background threads. Parameters come in the order of the backward pass, last layer first, then the
        vectors. Scores may hold NaN: see `Score.check_finite`.

        workers: processes that share the rollouts, and call this together. Each then passes over its own rows, whose
        logits `between` is given, and visits the parameters that it measures, with the rows of all processes.
        """
        rows, mask = workers.rows(len(rollouts.mask)), rollouts.mask
        given = mask.to(torch.float32) if weights is None else weights.where(mask, 0.0)
        mine = without_padding(rollouts).rows(rows.mine)
        blocks = checkpointing.blocks(self.model)
        inside = {module for block in blocks for module in block.modules()}

        whole_rows: list[TokenScores] = []

        def after(scores: Tensor, tokens: TokenScores) -> None:
            whole_rows.append(TokenScores(rows.join(tokens.logp), rows.join(tokens.norms)))
            if between is not None:
                between(scores, *whole_rows)

        with (
            _checkpointing(self.model),
            hooks.collecting(self.model, self.measured, self._owners, inside) as collector,
            checkpointing.recomputed(blocks),
        ):
            with saved_bytes() as saved:
                _, total = weighted_logp(self.model, mine, given[rows.mine], self.temperature, after)
            self.half = collector.half
            self.bytes_per_token = (saved() + collector.kept_bytes()) / _tokens(mine)
            measuring = cpu.in_background(visit, keep, mask.device, _together) if keep else nullcontext(visit)
            with measuring as measure, workers.assembling(measure, rows, self.entries) as collector.visit:
                total.backward()
                collector.finish()
        for name, kind in collector.unseen.items():
            raise Refusal(f"{kind} uses {name} in a way that is not measured; freeze that layer to measure the rest")
        return whole_rows[0]


def _together(score: Score) -> bool:
    """Whether all threads work on this parameter together: a large one, and rows of one that processes share."""
    return score.large or score.part is not None


def whole(array: Any) -> Tensor:
    """The array itself, or all of one that is spread over several processes, all of which must call this."""
    gathered: Tensor = array.full_tensor() if spread(array) else array
    return gathered


def spread(array: Tensor) -> bool:
    """Whether the array is a DTensor, of which several processes hold parts."""
    return hasattr(array, "full_tensor")


def _tokens(rollouts: Rollouts) -> int:
    """Number of token positions of a batch, padding included."""
    return rollouts.prompt_ids.numel() + rollouts.tokens.numel()


def attach(model: Any, rollouts: Rollouts | None = None, temperature: float = 1.0) -> AttachedModel:
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
    attached = AttachedModel(
        model, temperature, measured, left_out, _owners={n: owners[id(p)] for n, p in measured.items()}
    )
    if rollouts is not None:
        _self_check(attached, rollouts)
    return attached


def _self_check(attached: AttachedModel, rollouts: Rollouts, most: int = 2) -> None:
    """Compare Σ w ∇log π from the factors with autograd's, on two rollouts of a few tokens with random weights.

    The factors of so few tokens are small and all kept; autograd's gradients are as large as the model, so each is
    released as soon as it was compared, and read once: both are multiplied by DIRECTIONS random vectors x, for which
    E‖G x‖² = ‖G‖². UserError where the two disagree.
    """
    few = _excerpt(rollouts, most)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(few.mask.shape, generator=generator).to(few.mask.device).where(few.mask, 0.0)
    waiting: dict[str, Score] = {}

    def wait(score: Score) -> None:
        score.check_finite()
        waiting[score.name] = score

    attached.stream(few, wait, weights)
    off: dict[str, float] = {}
    size: dict[str, float] = {}
    missing: list[str] = []

    def compare(name: str, gradient: Tensor) -> None:
        """Note the squared norms of a gradient of autograd and of its difference from the factors."""
        score = waiting.pop(name, None)
        if score is not None:
            normal = torch.randn(score.shape[1], DIRECTIONS, generator=generator) / DIRECTIONS**0.5
            directions = normal.to(gradient.device, score.dtype)
            theirs = attached.oriented(name, gradient).to(score.dtype) @ directions
            size[name] = _square(theirs)
            off[name] = _square(theirs - score.times(directions))
        elif name in attached.measured and bool(gradient.any()):
            missing.append(name)

    with _checkpointing(attached.model), _gradients_to(attached.model, compare):
        with saved_bytes() as saved:
            _, total = weighted_logp(attached.model, few, weights, attached.temperature)
        total.backward()
    for name, score in waiting.items():  # autograd has no gradient of these
        off[name], size[name] = _square(score.dense()), 0.0
    blocks = len(checkpointing.blocks(attached.model))
    attached.bytes_per_token += saved() / _tokens(few) / blocks if blocks else 0.0  # one block is recomputed at a time
    for name in missing:  # used outside of its layer, such as Mamba's step sizes: left out, by name
        del attached.measured[name], attached._owners[name]
    attached.left_out += tuple(missing)
    total_size = math.fsum(size.values())
    attached.error = math.sqrt(math.fsum(off.values()) / total_size) if total_size else math.nan
    relative = {name: math.sqrt(off[name] / size[name]) for name in off if size[name] > 1e-12 * total_size}
    attached.worst = max(relative.items(), key=lambda item: item[1], default=("", math.nan))
    allowed = 0.1 if attached.half else 1e-3
    if not attached.error <= allowed:
        raise Refusal(
            f"the gradient put together from the layers differs from autograd's by {attached.error:.1e} (relative), "
            f"most at {attached.worst[0]}: this model uses its weights in a way that is not measured; freeze that layer"
        )


def _square(array: Tensor) -> float:
    """Squared Frobenius norm, taken by rows so that several threads work on it."""
    return float(torch.linalg.vector_norm(array, dim=-1).double().square().sum())


@contextmanager
def _gradients_to(model: nn.Module, visit: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Inside the `with` block, `visit` gets each gradient of autograd at once; `.grad` is restored in the end.

    Gradients of parameters that are spread over several processes are visited at the end of the block, gathered.
    """
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
            if not spread(parameter):
                stack.callback(parameter.register_post_accumulate_grad_hook(hook(name)).remove)
        yield
        for name, parameter in trained.items():
            if parameter.grad is not None:
                gradient, parameter.grad = parameter.grad, None
                visit(name, whole(gradient))


def _excerpt(rollouts: Rollouts, most: int) -> Rollouts:
    """The first rollout and the shortest, cut to the last and first `most` tokens of prompt and completion."""
    lengths = rollouts.lengths
    rows = torch.stack((lengths.new_tensor(0), lengths.clamp(min=1).argmin()))
    mask = rollouts.mask[rows, :most]
    if not bool(mask.any()):
        rows = torch.stack((lengths.argmax(), lengths.argmax()))
        mask = rollouts.mask[rows, :most]
    cut = Rollouts(
        prompt_ids=rollouts.prompt_ids[rows][:, -most:],
        prompt_mask=rollouts.prompt_mask[rows][:, -most:],
        tokens=rollouts.tokens[rows, :most],
        mask=mask,
        logp=rollouts.logp[rows, :most],
        entropy=rollouts.entropy[rows, :most],
        truncated=rollouts.truncated[rows],
        rewards=rollouts.rewards.new_zeros(1, 2),
    )
    return without_padding(cut)


@contextmanager
def _checkpointing(model: Any) -> Iterator[None]:
    """Training mode if the model checkpoints its activations, which it does in that mode only; dropout is off."""
    was, wanted = model.training, recomputes_activations(model)
    if was == wanted:
        yield
        return
    model.train(wanted)
    try:
        yield
    finally:
        model.train(was)


# Memory


@contextmanager
def saved_bytes() -> Iterator[Callable[[], int]]:
    """Count the bytes autograd keeps for the backward pass, without the weights."""
    seen: dict[int, int] = {}

    def pack(array: Tensor) -> Tensor:
        if not isinstance(array if array._base is None else array._base, nn.Parameter):
            storage = array.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
        return array

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda array: array):
        yield lambda: sum(seen.values())
