"""Stacks of experts: parameters (E, R, C), or their biases (E, R), of which every token uses those it is routed to.

    S_i[e] = Σ_{t of rollout i that expert e sees} b_t a_tᵀ    (a: a token before the product, b: the gradient after it)

The module's own forward runs, one expert after the other or all in one grouped product, and the products in which it
uses its stacks are observed. Experts see tokens of all rollouts mixed, so the rows of a product are traced to their
rollouts through the last index by which the module picked rows of its input. A use that cannot be traced is left to
autograd, and the parameter is then measured by `without_hook`. The self-check weighs rollouts differently, so that a
token given to the wrong rollout is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from grposcope.instruments.gradient.score import Score, Use


@dataclass(frozen=True)
class Routed:
    """Factors of a stack from one product: each row's expert (n,) and rollout (n,), rows (n, R) and columns (n, C)."""

    experts: Tensor
    rollouts: Tensor
    rows: Tensor
    columns: Tensor


def is_stack(module: nn.Module) -> bool:
    """Whether a module keeps its weights as a stack with an axis for experts, and has no parameters further in."""
    own = [p for p in module._parameters.values() if p is not None]
    inner = any(True for child in module.children() for _ in child.parameters())
    if inner or isinstance(module, nn.modules.conv._ConvNd) or not any(p.dim() == 3 for p in own):
        return False
    return len({len(p) for p in own}) == 1 and all(p.dim() in (2, 3) for p in own)


def is_stacked_bias(module: nn.Module, parameter: Tensor) -> bool:
    """Whether this parameter has a vector for every expert of a stack."""
    return parameter.dim() == 2 and is_stack(module)


def scores(name: str, routed: Sequence[Routed], shape: tuple[int, int, int], batch: int) -> Iterator[Score]:
    """The Score of each expert of a stack (E, R, C), those that no token was routed to among them."""
    count, rows, columns = shape
    of_expert = torch.cat([expert.experts for expert in routed])
    of_rollout = torch.cat([expert.rollouts for expert in routed])
    left, right = torch.cat([expert.rows for expert in routed]), torch.cat([expert.columns for expert in routed])
    order = torch.argsort(of_expert * batch + of_rollout, stable=True)
    ends = torch.bincount(of_expert, minlength=count).cumsum(0).tolist()
    for expert, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        which = order[start:end]
        counts = torch.bincount(of_rollout[which], minlength=batch)
        length = max(1, int(counts.max()))
        slot = torch.arange(len(which), device=which.device) - (counts.cumsum(0) - counts)[of_rollout[which]]
        padded = [array.new_zeros(batch, length, array.shape[1]) for array in (left, right)]
        for whole, array in zip(padded, (left, right), strict=True):
            whole[of_rollout[which], slot] = array[which]
        yield Score(name, "experts", (rows, columns), (Use(padded[0], padded[1]),), expert=(expert, count))


class _Collecting(Protocol):
    """What a stack needs of a pass: its numbers of rollouts and of tokens of each, and where factors go."""

    batch: int
    length: int
    half: bool
    names: dict[tuple[nn.Module, str], str]

    def called(self, name: str) -> None:
        """Count a use of a parameter in the forward pass."""

    def received(self, name: str, use: Any) -> None:
        """Take a use of a parameter reported by the backward pass."""

    def vector(self, name: str, gradient: Tensor) -> None:
        """Add per-rollout gradients (B, d) of a vector."""


class StackForward:
    """A stack's own forward, with the uses of its parameters `keys` observed."""

    def __init__(self, module: Any, keys: list[str], collector: _Collecting):
        self.module, self.keys, self.collector, self.own = module, keys, collector, module.forward

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        own = {self.collector.names[self.module, key]: self.module._parameters[key] for key in self.keys}
        with _StackUses(own, self.collector):
            return self.own(*arguments, **keywords)


class _StackUses(TorchFunctionMode):
    """Inside the `with` block, products with slices of the stacks `own`, or with all of one, report their factors."""

    def __init__(self, own: dict[str, Tensor], collector: _Collecting):
        super().__init__()
        self.own, self.collector = own, collector
        self.tokens = collector.batch * collector.length
        self.picked: Tensor | None = None  # rollouts of the rows that were picked last
        self.slices: list[tuple[Tensor, str, int]] = []

    def __torch_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        keywords = keywords or {}
        out = None
        if function is Tensor.__getitem__:
            out = self._index(*arguments)
        elif function in (F.linear, *_PRODUCTS) and len(arguments) > 1 and isinstance(arguments[1], Tensor):
            out = self._of_one(function, arguments, keywords)
        elif function in _GROUPED and len(arguments) > 1:
            out = self._of_groups(function, *arguments, **keywords)
        elif function in (torch.bmm, Tensor.bmm, *_PRODUCTS) and len(arguments) == 2:
            out = self._of_all(*arguments)
        if out is None:  # a use of another kind: with the stack's own slices, so that autograd sees it
            unwrapped = tuple(self._undone(each) for each in arguments)
            out = function(*unwrapped, **{key: self._undone(each) for key, each in keywords.items()})
        return out

    def _index(self, array: Tensor, index: Any) -> Tensor | None:
        name = next((name for name, own in self.own.items() if own is array), None)
        if name is None:
            first = index[0] if isinstance(index, tuple) and index else index
            of_rows = isinstance(first, Tensor) and first.dim() == 1 and first.dtype == torch.long
            if array.dim() > 1 and len(array) == self.tokens and of_rows:
                self.picked = first // self.collector.length
            return None
        number = isinstance(index, int) or (
            isinstance(index, Tensor) and index.dim() == 0 and index.dtype == torch.long
        )
        if array.dim() == 3 and number:
            piece = array.detach()[index]
            self.slices.append((piece, name, int(index)))
            return piece
        if array.dim() == 2 and self.picked is not None:
            if number:
                return self._biases(name, array, torch.full_like(self.picked, int(index)), self.picked)
            if isinstance(index, Tensor) and index.shape == self.picked.shape and index.dtype == torch.long:
                return self._biases(name, array, index, self.picked)
        return None

    def _of_one(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor | None:
        """The product of tokens with the weights of one expert."""
        x, weight = arguments[:2]
        match = next(((name, expert, False) for own, name, expert in self.slices if own is weight), None)
        if match is None and weight.dim() == 2:
            layout = weight.data_ptr(), weight.shape[::-1], weight.stride()[::-1]
            turned = [
                stacked
                for stacked in self.slices
                if (stacked[0].data_ptr(), stacked[0].shape, stacked[0].stride()) == layout
            ]
            match = (*turned[0][1:], True) if turned else None
        rollouts = self._rollouts(len(x)) if isinstance(x, Tensor) and x.dim() == 2 else None
        if match is None or rollouts is None:
            return None
        name, expert, turned_back = match
        bias = arguments[2] if len(arguments) > 2 else keywords.get("bias")
        as_linear = (function is F.linear) != turned_back  # whether the slice is kept as outputs × inputs
        matrix = weight.mT if function is F.linear else weight

        def report(x: Tensor, gradient: Tensor) -> None:
            experts = torch.full_like(rollouts, expert)
            rows, columns = (gradient, x) if as_linear else (x, gradient)
            self.collector.received(name, Routed(experts, rollouts, _precise(rows), _precise(columns)))

        out = self._reported(name, weight, x, lambda x: x @ matrix, lambda gradient: gradient @ matrix.mT, report)
        return out if bias is None else out + bias

    def _of_groups(self, function: Any, x: Tensor, weight: Any = None, offs: Any = None, **more: Any) -> Tensor | None:
        """The products of sorted tokens with the weights of their experts."""
        name, as_kept = self._stack(weight)
        rollouts = self._rollouts(len(x))
        if name is None or rollouts is None or offs is None or any(each is not None for each in more.values()):
            return None
        weights, ends = weight.detach(), offs.long()

        def report(x: Tensor, gradient: Tensor) -> None:
            experts = torch.searchsorted(ends, torch.arange(len(x), device=x.device), right=True)
            valid = experts < len(ends)
            rows, columns = (x, gradient) if as_kept else (gradient, x)
            factors = (_precise(rows[valid]), _precise(columns[valid]))
            self.collector.received(name, Routed(experts[valid], rollouts[valid], *factors))

        def back(gradient: Tensor) -> Tensor:
            passed: Tensor = function(gradient.contiguous(), weights.transpose(-2, -1), offs=offs)
            return passed

        return self._reported(name, weight, x, lambda x: function(x, weights, offs=offs), back, report)

    def _of_all(self, x: Any, weight: Any) -> Tensor | None:
        """The products (E, n, R) of all tokens with all experts, as a batch."""
        name, as_kept = self._stack(weight)
        if name is None or x.dim() != 3 or x.shape[1] != self.tokens:
            return None
        weights = weight.detach()
        rollouts = torch.arange(self.tokens, device=x.device) // self.collector.length

        def report(x: Tensor, gradient: Tensor) -> None:
            experts = torch.arange(len(x), device=x.device).repeat_interleave(x.shape[1])
            flat = _precise(x.flatten(0, 1)), _precise(gradient.flatten(0, 1))
            rows, columns = flat if as_kept else flat[::-1]
            self.collector.received(name, Routed(experts, rollouts.repeat(len(x)), rows, columns))

        return self._reported(
            name, weight, x, lambda x: torch.bmm(x, weights), lambda gradient: torch.bmm(gradient, weights.mT), report
        )

    def _biases(self, name: str, array: Tensor, experts: Tensor, rollouts: Tensor) -> Tensor:
        """The biases (n, R) of the expert of each row."""
        shape, batch = array.shape, self.collector.batch

        def report(_: Tensor, gradient: Tensor) -> None:
            precise = _precise(gradient)
            total = precise.new_zeros(batch, *shape).index_put_((rollouts, experts), precise, accumulate=True)
            self.collector.vector(name, total.flatten(1))

        chosen = array.detach()[experts]
        leaf = chosen.new_zeros(0).requires_grad_(array.requires_grad)
        out: Tensor = _Reported.apply(leaf, lambda _: chosen, lambda gradient: gradient.new_zeros(0), report)
        return out

    def _reported(self, name: str, weight: Tensor, x: Tensor, compute: Any, back: Any, report: Any) -> Tensor:
        self.collector.called(name)
        self.collector.half |= weight.itemsize == 2
        cast = x.to(weight.dtype)
        if torch.is_grad_enabled() and not cast.requires_grad:  # all below is frozen
            cast = cast.detach().requires_grad_()
        out: Tensor = _Reported.apply(cast, compute, back, report)
        return out

    def _rollouts(self, count: int) -> Tensor | None:
        """The rollout of each of `count` rows, (count,); None where they cannot be traced."""
        if self.picked is not None and len(self.picked) == count:
            return self.picked
        if count != self.tokens:
            return None
        device = next(iter(self.own.values())).device
        return torch.arange(count, device=device) // self.collector.length

    def _stack(self, weight: Any) -> tuple[str | None, bool]:
        """The stack that this is, as it is kept (True) or with its last two axes turned."""
        if not isinstance(weight, Tensor) or weight.dim() != 3:
            return None, True
        for name, own in self.own.items():
            if own.data_ptr() == weight.data_ptr():
                if own.shape == weight.shape and own.stride() == weight.stride():
                    return name, True
                if own.mT.shape == weight.shape and own.mT.stride() == weight.stride():
                    return name, False
        return None, True

    def _undone(self, each: Any) -> Any:
        """A slice of a stack as one that autograd follows."""
        match = next(((name, expert) for own, name, expert in self.slices if own is each), None)
        return each if match is None else self.own[match[0]][match[1]]


def _precise(array: Tensor) -> Tensor:
    return array.to(torch.promote_types(array.dtype, torch.float32))


_PRODUCTS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)


def _grouped() -> tuple[Callable[..., Any], ...]:
    functions = [getattr(torch, "_grouped_mm", None), getattr(F, "grouped_mm", None)]
    return tuple(each for each in functions if each is not None)


_GROUPED = _grouped()
"""Grouped products of this torch."""


class _Reported(torch.autograd.Function):
    """`compute` of x, whose backward reports x and the gradient at the result, and passes on `back` of the latter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, compute: Any, back: Any, report: Any) -> Tensor:
        ctx.save_for_backward(x)
        ctx.back, ctx.report = back, report
        out: Tensor = compute(x)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        ctx.report(x.detach(), gradients[0])
        return ctx.back(gradients[0]) if ctx.needs_input_grad[0] else None, None, None, None
