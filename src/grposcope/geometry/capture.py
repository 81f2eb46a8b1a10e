"""How factors are caught: measured modules get, for one pass, a forward whose backward reports them.

A linear layer reports its input and the gradient at its output in place of a weight gradient; an
embedding its ids and the gradient at its output; a vector (the weights of a norm) is copied for every
rollout so that its gradients come apart. Saved inputs go through autograd, so checkpointing works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grposcope.errors import UserError
from grposcope.geometry.scores import Score, Use, Visitor

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

    def __init__(self, measured: dict[str, nn.Parameter], owners: Owners, visit: Visitor):
        self.measured, self.owners, self.visit = measured, owners, visit
        self.names = {id(p): name for name, p in measured.items()}
        self.calls: dict[int, int] = {}
        self.uses: dict[str, list[Use]] = {}
        self.vectors: dict[int, Tensor] = {}
        self.leaves: dict[tuple[int, int], Tensor] = {}
        self.phase = "forward"
        self.batch = 0

    def called(self, parameter: Tensor) -> None:
        """A use in the forward pass; those of a recomputation during the backward pass do not count."""
        if self.phase == "forward":
            self.calls[id(parameter)] = self.calls.get(id(parameter), 0) + 1

    def received(self, parameter: nn.Parameter, use: Use) -> None:
        """A use in the backward pass."""
        name = self.names[id(parameter)]
        if not (bool(torch.isfinite(use.columns.sum())) and (use.lookup or bool(torch.isfinite(use.rows.sum())))):
            raise UserError(
                f"layer {name}: the activations or gradients are not finite; "
                "load the model in float32, or look at the checkpoint for NaN"
            )
        waiting = self.uses.setdefault(name, [])
        waiting.append(use)
        if len(waiting) == self.calls[id(parameter)]:
            self.hand_over(name)

    def hand_over(self, name: str) -> None:
        """A matrix all of whose uses have come."""
        uses = tuple(self.uses.pop(name))
        weights = oriented(self.owners[name], self.measured[name].detach())
        kind = "embedding" if all(use.lookup for use in uses) else "linear"
        self.visit(Score(name, kind, (weights.shape[0], weights.shape[1]), weights, uses))

    def vector(self, parameter: nn.Parameter, gradient: Tensor) -> None:
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

    def finish(self) -> None:
        """Hand over the vectors, and whatever had fewer uses in the backward pass than in the forward one."""
        for (which, _), leaf in self.leaves.items():
            if leaf.grad is not None:
                gradient = leaf.grad.reshape(self.batch, -1).to(torch.promote_types(leaf.dtype, torch.float32))
                before = self.vectors.get(which)
                self.vectors[which] = gradient if before is None else before + gradient
        for name in list(self.uses):
            self.hand_over(name)
        for which, gradient in self.vectors.items():
            name = self.names[which]
            if not bool(torch.isfinite(gradient).all()):
                raise UserError(f"layer {name}: the gradients are not finite; load the model in float32")
            weights = self.measured[name].detach()
            self.visit(Score(name, "vector", (1, len(weights)), weights[None], direct=gradient))


@contextmanager
def patched(model: nn.Module, measured: dict[str, nn.Parameter], owners: Owners, visit: Visitor) -> Iterator[Collect]:
    """Replace the forward of every measured module for the time of one pass."""
    collect = Collect(measured, owners, visit)
    modules: dict[nn.Module, list[str]] = {}
    for owned in owners.values():
        for module, key in owned:
            modules.setdefault(module, []).append(key)

    def first(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        ids = keywords.get("input_ids")
        collect.batch = len(ids if ids is not None else arguments[0])

    with ExitStack() as stack:
        handle = model.register_forward_pre_hook(first, with_kwargs=True)
        stack.callback(handle.remove)
        for module, keys in modules.items():
            if isinstance(module, nn.Linear) or transposed(module):
                replacement: Any = _linear(module, keys, collect)
            elif isinstance(module, nn.Embedding):
                replacement = _embedding(module, collect)
            else:
                replacement = _vectors(module, keys, collect)
            had, before = "forward" in module.__dict__, module.forward
            module.forward = replacement
            stack.callback(_restore, module, had, before)
        yield collect


def _restore(module: nn.Module, had: bool, before: Any) -> None:
    if had:
        module.forward = before
    else:
        del module.__dict__["forward"]


def _rows(array: Tensor, batch: int) -> Tensor:
    """(B, L, d) in at least float32, whatever leading axes the layer saw."""
    shaped = array.reshape(batch, -1, array.shape[-1])
    return shaped.to(torch.promote_types(array.dtype, torch.float32))


def _linear(module: Any, keys: list[str], collect: Collect) -> Callable[[Tensor], Tensor]:
    weight, bias = module.weight, module.bias
    turned, measured = transposed(module), "weight" in keys

    def report(x: Tensor, gradient: Tensor) -> None:
        rows = _rows(gradient, collect.batch)
        if bias is not None and "bias" in keys:
            collect.vector(bias, rows.sum(1))
        if measured:
            collect.received(weight, Use(rows, _rows(x, collect.batch)))

    def forward(x: Tensor) -> Tensor:
        if measured:
            collect.called(weight)
        out: Tensor = _Matrix.apply(x, weight, bias, turned, report)
        return out

    return forward


def _embedding(module: nn.Embedding, collect: Collect) -> Callable[[Tensor], Tensor]:
    weight, padding = module.weight, -1 if module.padding_idx is None else module.padding_idx

    def report(ids: Tensor, gradient: Tensor) -> None:
        whole = ids.reshape(ids.shape[0], -1)
        rows = _rows(gradient, whole.shape[0])
        if len(whole) != collect.batch:  # one row of positions for all rollouts: autograd added their gradients up
            raise UserError(
                "an embedding is looked up once for all rollouts of the batch; freeze it to measure the rest"
            )
        collect.received(cast(nn.Parameter, weight), Use(whole, rows, padding))

    def forward(ids: Tensor) -> Tensor:
        collect.called(weight)
        out: Tensor = _Lookup.apply(ids, weight, report)
        return out

    return forward


def _vectors(module: Any, keys: list[str], collect: Collect) -> Callable[..., Any]:
    """A module that owns vectors, with a copy of them for every rollout."""
    before = module.forward

    def forward(x: Tensor, *arguments: Any, **keywords: Any) -> Any:
        if len(x) != collect.batch:
            raise UserError(f"{type(module).__name__} mixes the rollouts of a batch before its weights; freeze it")
        copies = {key: collect.leaf(module, key, x.dim()) for key in keys}
        if isinstance(module, nn.LayerNorm | nn.RMSNorm):
            return _norm(module, x, copies)
        originals = {key: module._parameters[key] for key in keys}
        module._parameters.update(copies)
        try:
            return before(x, *arguments, **keywords)
        finally:
            module._parameters.update(originals)

    return forward


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
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool, report: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.transposed, ctx.report = transposed, report
        return F.linear(x, weight.mT if transposed else weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        ctx.report(x.detach(), gradient)
        passed = gradient @ (weight.mT if ctx.transposed else weight) if ctx.needs_input_grad[0] else None
        return passed, None, None, None, None


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
