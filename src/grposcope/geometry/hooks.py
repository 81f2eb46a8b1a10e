"""How factors are caught: measured modules get, for one pass, a forward whose backward reports them.

A linear layer reports its input and the gradient at its output in place of a weight gradient; an
embedding its ids and the gradient at its output; a vector (the weights of a norm) is copied for every
rollout so that its gradients come apart. Saved inputs go through autograd, so checkpointing works; a layer
that is called again in the backward pass then gives the output that was kept of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grposcope.errors import UserError
from grposcope.geometry.checkpointing import Shelf, replaced
from grposcope.geometry.score import Score, Use, Visitor

Owners = dict[str, list[tuple[nn.Module, str]]]
"""The modules that hold each measured parameter, with its name in the module."""


def known(module: nn.Module, key: str) -> bool:
    """Whether this parameter of this module can be measured."""
    parameter = module._parameters[key]
    assert parameter is not None
    if isinstance(module, nn.Linear) or transposed(module):
        return True
    if isinstance(module, nn.Embedding):
        return module.max_norm is None and not module.sparse and not module.scale_grad_by_freq
    return parameter.dim() == 1 and not isinstance(module, nn.modules.conv._ConvNd | nn.modules.batchnorm._BatchNorm)


def transposed(module: nn.Module) -> bool:
    """GPT-2's linear layers, whose weights are inputs × outputs."""
    return type(module).__name__ == "Conv1D"


def oriented(owned: list[tuple[nn.Module, str]], array: Tensor) -> Tensor:
    """A parameter's weights or gradient as outputs × inputs (R, C); GPT-2 keeps them the other way round."""
    if array.dim() == 1:
        return array[None]
    return array.mT if any(transposed(module) for module, _ in owned) else array


class Collect:
    """Receives uses and hands a parameter over when its last use has come."""

    def __init__(self, measured: dict[str, nn.Parameter], owners: Owners, recomputed: set[nn.Module]):
        self.measured, self.owners, self.recomputed = measured, owners, recomputed
        self.names = {id(p): name for name, p in measured.items()}
        self.calls: dict[int, int] = {}
        self.uses: dict[str, list[Use]] = {}
        self.vectors: dict[int, Tensor] = {}
        self.leaves: dict[tuple[int, int], Tensor] = {}
        self.outputs: dict[nn.Module, tuple[Tensor, int] | None] = {}
        self.shelf = Shelf()
        self.visit: Visitor | None = None
        """Who gets the scores of the backward pass; there is none in the forward pass."""
        self.batch = 0

    def begin(self, _: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """The model is called: how many rollouts there are."""
        ids = keywords.get("input_ids")
        self.batch = len(ids if ids is not None else arguments[0])

    def room(self, module: nn.Module, like: Tensor, shape: tuple[int, ...]) -> Tensor | None:
        """Where a linear layer is to put its output that will be asked for again; of its first call alone."""
        kept = self.visit is None and module in self.recomputed and module not in self.outputs
        return self.shelf.room(like, shape) if kept else None

    def keep_output(self, module: nn.Module, out: Tensor) -> None:
        """Keep what a linear layer gave, for when it is called again; not of one that is called several times."""
        if self.visit is None and module in self.recomputed:
            self.outputs[module] = None if module in self.outputs else (out.detach(), out._version)

    def known_output(self, module: nn.Module) -> tuple[Tensor, ...]:
        """What the layer gave in the forward pass, once; in a tuple, since autograd takes a tensor for an input.

        Nothing where the model has written over it.
        """
        known = self.outputs.pop(module, None) if self.visit is not None else None
        return () if known is None or known[0]._version != known[1] else (known[0],)

    def kept_bytes(self) -> int:
        """Size of the outputs kept."""
        return sum(kept[0].nbytes for kept in self.outputs.values() if kept is not None)

    def called(self, parameter: Tensor) -> None:
        """A use in the forward pass; those of a recomputation during the backward pass do not count."""
        if self.visit is None:
            self.calls[id(parameter)] = self.calls.get(id(parameter), 0) + 1

    def received(self, parameter: Tensor, use: Use) -> None:
        """A use in the backward pass."""
        name = self.names[id(parameter)]
        waiting = self.uses.setdefault(name, [])
        waiting.append(use)
        if len(waiting) == self.calls[id(parameter)]:
            self.hand_over(name)

    def hand_over(self, name: str) -> None:
        """A matrix all of whose uses have come."""
        uses = tuple(self.uses.pop(name))
        weights = oriented(self.owners[name], self.measured[name].detach())
        kind = "embedding" if all(use.lookup for use in uses) else "linear"
        assert self.visit is not None
        self.visit(Score(name, kind, (weights.shape[0], weights.shape[1]), weights, uses))

    def vector(self, parameter: Tensor, gradient: Tensor) -> None:
        """Per-rollout gradients (B, d) of a vector; several uses add up."""
        before = self.vectors.get(id(parameter))
        self.vectors[id(parameter)] = gradient if before is None else before + gradient

    def leaf(self, module: nn.Module, key: str, rank: int) -> Tensor:
        """A copy of a vector for every rollout, (B, 1, …, d), so that its gradients come apart."""
        parameter = module._parameters[key]
        assert parameter is not None
        place = (id(parameter), rank)
        if place not in self.leaves:
            shape = (self.batch, *[1] * (rank - 2), len(parameter))
            copies = parameter.detach().expand(self.batch, -1).reshape(shape).clone()
            self.leaves[place] = copies.requires_grad_()
        return self.leaves[place]

    def forget(self) -> None:
        """Let go of everything; a pass that ended early may leave its graph behind, and that refers to this."""
        for kept in (self.outputs, self.uses, self.vectors, self.leaves):
            kept.clear()
        self.shelf = Shelf()

    def finish(self) -> None:
        """Hand over the vectors, and whatever had fewer uses in the backward pass than in the forward one."""
        for (which, _), leaf in self.leaves.items():
            if leaf.grad is not None:
                gradient = leaf.grad.reshape(self.batch, -1).to(torch.promote_types(leaf.dtype, torch.float32))
                before = self.vectors.get(which)
                self.vectors[which] = gradient if before is None else before + gradient
        for name in list(self.uses):
            self.hand_over(name)
        assert self.visit is not None
        for which, gradient in self.vectors.items():
            name = self.names[which]
            weights = self.measured[name].detach()
            self.visit(Score(name, "vector", (1, len(weights)), weights[None], direct=gradient))


@contextmanager
def patched(
    model: nn.Module, measured: dict[str, nn.Parameter], owners: Owners, recomputed: set[nn.Module]
) -> Iterator[Collect]:
    """Replace the forward of every measured module for the time of one pass.

    recomputed: modules whose forward is called again in the backward pass.
    """
    collect = Collect(measured, owners, recomputed)
    modules: dict[nn.Module, list[str]] = {}
    for owned in owners.values():
        for module, key in owned:
            modules.setdefault(module, []).append(key)
    with ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(collect.begin, with_kwargs=True).remove)
        for module, keys in modules.items():
            stack.enter_context(replaced(module, _replacement(module, keys, collect)))
        stack.callback(collect.forget)
        yield collect


def _replacement(module: Any, keys: list[str], collect: Collect) -> Callable[..., Any]:
    if isinstance(module, nn.Linear) or transposed(module):
        return _Linear(module, keys, collect)
    if isinstance(module, nn.Embedding):
        return _Embedding(module, collect)
    return _Vectors(module, keys, collect)


def _rows(array: Tensor, batch: int) -> Tensor:
    """(B, L, d) in at least float32, whatever leading axes the layer saw."""
    shaped = array.reshape(batch, -1, array.shape[-1])
    return shaped.to(torch.promote_types(array.dtype, torch.float32))


class _Linear:
    """The forward of a linear layer, `keys` of which (weight, bias) are measured."""

    def __init__(self, module: Any, keys: list[str], collect: Collect):
        self.module, self.collect = module, collect
        self.weighs, self.biased = "weight" in keys, "bias" in keys
        self.turned = transposed(module)

    def __call__(self, x: Tensor) -> Tensor:
        known = self.collect.known_output(self.module)
        if self.weighs:
            self.collect.called(self.module.weight)
        shape = (*x.shape[:-1], self.module.weight.shape[1 if self.turned else 0])
        room = None if known else self.collect.room(self.module, x, shape)
        place = () if room is None else (room,)
        out: Tensor = _Matrix.apply(x, self.module.weight, self.module.bias, self.turned, self.report, known, place)
        self.collect.keep_output(self.module, out)
        return out

    def report(self, x: Tensor, gradient: Tensor) -> None:
        """What the backward pass saw: the layer's input, and the gradient at its output."""
        rows = _rows(gradient, self.collect.batch)
        if self.biased:
            self.collect.vector(self.module.bias, rows.sum(1))
        if self.weighs:
            self.collect.received(self.module.weight, Use(rows, _rows(x, self.collect.batch)))


class _Embedding:
    """The forward of an embedding."""

    def __init__(self, module: nn.Embedding, collect: Collect):
        self.weight, self.collect = module.weight, collect
        self.padding = -1 if module.padding_idx is None else module.padding_idx

    def __call__(self, ids: Tensor) -> Tensor:
        self.collect.called(self.weight)
        out: Tensor = _Lookup.apply(ids, self.weight, self.report)
        return out

    def report(self, ids: Tensor, gradient: Tensor) -> None:
        """What the backward pass saw: the ids, and the gradient at what they stand for."""
        whole = ids.reshape(ids.shape[0], -1)
        if len(whole) != self.collect.batch:  # one row of positions for all: autograd added their gradients up
            raise UserError(
                "an embedding is looked up once for all rollouts of the batch; freeze it to measure the rest"
            )
        self.collect.received(self.weight, Use(whole, _rows(gradient, len(whole)), self.padding))


class _Vectors:
    """The forward of a module that owns vectors, with a copy of them for every rollout."""

    def __init__(self, module: Any, keys: list[str], collect: Collect):
        self.module, self.keys, self.collect = module, keys, collect
        self.own = module.forward

    def __call__(self, x: Tensor, *arguments: Any, **keywords: Any) -> Any:
        if len(x) != self.collect.batch:
            name = type(self.module).__name__
            raise UserError(f"{name} mixes the rollouts of a batch before its weights; freeze it")
        copies = {key: self.collect.leaf(self.module, key, x.dim()) for key in self.keys}
        if isinstance(self.module, nn.LayerNorm | nn.RMSNorm):
            return _norm(self.module, x, copies)
        originals = {key: self.module._parameters[key] for key in self.keys}
        self.module._parameters.update(copies)
        try:
            return self.own(x, *arguments, **keywords)
        finally:
            self.module._parameters.update(originals)


def _norm(module: Any, x: Tensor, copies: dict[str, Tensor]) -> Tensor:
    """torch's own norms, whose weights must not have a batch axis, with the weights applied outside."""
    bias = getattr(module, "bias", None)
    bare = F.layer_norm if isinstance(module, nn.LayerNorm) else F.rms_norm
    out = bare(x, module.normalized_shape, eps=module.eps)
    if module.weight is not None:
        out = out * copies.get("weight", module.weight)
    return out if bias is None else out + copies.get("bias", bias)


class _Matrix(torch.autograd.Function):
    """A linear layer that passes gradients on to its input and reports its factors instead of a weight gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        transposed: bool,
        report: Any,
        known: tuple[Tensor, ...],
        place: tuple[Tensor, ...],
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.transposed, ctx.report = transposed, report
        if known:
            return known[0]
        return _product(x, weight if transposed else weight.mT, bias, *place)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        ctx.report(x.detach(), gradient)
        passed = gradient @ (weight.mT if ctx.transposed else weight) if ctx.needs_input_grad[0] else None
        return passed, None, None, None, None, None, None


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, place: Tensor | None = None) -> Tensor:
    """x (…, C) times a weight (C, R), plus a bias (R,), in `place` (…, R) where that is given."""
    if place is None:
        return F.linear(x, weight.mT, bias)
    flat, out = x.reshape(-1, x.shape[-1]), place.view(-1, place.shape[-1])
    if bias is None:
        torch.mm(flat, weight, out=out)
    else:
        torch.addmm(bias, flat, weight, out=out)
    return place


class _Lookup(torch.autograd.Function):
    """An embedding that reports its factors instead of a weight gradient."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, report: Any) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.report = report
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (ids,) = ctx.saved_tensors
        ctx.report(ids, gradients[0])
        return None, None, None
