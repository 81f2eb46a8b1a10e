"""Hooks that collect each parameter's factors: measured modules get, for one pass, a forward whose backward reports.

A linear layer reports its input and the gradient at its output in place of a weight gradient; an
embedding its ids and the gradient at what it looked up; a vector (the weights of a norm) is copied for every
rollout, so that each rollout has a gradient of its own. Saved inputs go through autograd, so checkpointing works;
a linear layer that is called again in the backward pass then returns the output kept from its first call.

Only the forward of a plain linear layer is replaced. Every other module runs its own, which may scale what it looked
up (Gemma, BART) or add one to its weights (Gemma's norms), and the calls in which it uses its parameters are observed,
those of stacked experts in `experts`. A use that is not observed goes to autograd, and the parameter is then measured
apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import Parameter, Signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import experts
from grposcope.instruments.gradient.checkpointing import replaced_forward
from grposcope.instruments.gradient.experts import Routed
from grposcope.instruments.gradient.score import Score, Use, Visitor

Owners = dict[str, list[tuple[nn.Module, str]]]
"""Name of a measured parameter -> the modules that hold it, with its name in the module."""

PIECE = 64 * 2**20
"""Bytes of one allocation of an `_Arena`: large enough that the C library returns it at once (glibc: above 32 MiB)."""


class Unmeasured(UserError):
    """A module that does not work with its parameters `names` copied for every rollout, raised in the forward pass."""

    def __init__(self, message: str, names: tuple[str, ...]):
        super().__init__(message)
        self.names = names


def known(module: nn.Module, key: str) -> bool:
    """Whether this parameter of this module can be measured by hooks."""
    parameter = module._parameters[key]
    assert parameter is not None
    if isinstance(module, nn.Linear) or _transposed(module):
        return parameter.dim() <= 2
    if experts.is_stack(module):
        return parameter.is_floating_point()
    if isinstance(module, nn.Embedding):
        return module.max_norm is None and not module.sparse and not module.scale_grad_by_freq
    if isinstance(module, nn.modules.conv._ConvNd | nn.modules.batchnorm._BatchNorm) or any(module.children()):
        return False  # a module of modules, such as a state-space layer, does more than scale what passes through
    return all(own is None or own.dim() in (1, 2) for own in module._parameters.values())


def _transposed(module: nn.Module) -> bool:
    """Whether this is a linear layer of GPT-2, whose weights are inputs × outputs."""
    return type(module).__name__ == "Conv1D"


def oriented(owned: list[tuple[nn.Module, str]], array: Tensor) -> Tensor:
    """A parameter's weights or gradient as outputs × inputs (R, C); GPT-2 keeps them the other way round."""
    if array.dim() == 1 or any(experts.is_stacked_bias(module, array) for module, _ in owned):
        return array.reshape(1, -1)
    if array.dim() == 3:
        return array.flatten(0, 1)
    return array.mT if any(_transposed(module) for module, _ in owned) else array


def oriented_shape(owned: list[tuple[nn.Module, str]], array: Tensor) -> tuple[int, int]:
    """Outputs and inputs (R, C) of a parameter; also of one whose rows are spread over several processes."""
    if array.dim() == 1 or any(experts.is_stacked_bias(module, array) for module, _ in owned):
        return 1, array.numel()
    if array.dim() == 3:
        return array.shape[0] * array.shape[1], array.shape[2]
    rows, columns = array.shape
    return (columns, rows) if any(_transposed(module) for module, _ in owned) else (rows, columns)


class _Arena:
    """Memory for arrays that are kept until the backward pass, allocated next to each other.

    On a CPU, long-lived arrays would otherwise lie between short-lived ones, and the C library could not reuse the
    gaps that these leave.
    """

    def __init__(self) -> None:
        self.space, self.used = torch.empty(0, dtype=torch.uint8), 0

    def empty(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """An uninitialised array with the dtype of `like`; an allocation is freed with the last array in it."""
        if like.device.type != "cpu":
            return like.new_empty(shape)
        size = math.prod(shape) * like.itemsize
        if self.used + size > self.space.nbytes:
            self.space, self.used = torch.empty(max(PIECE, size), dtype=torch.uint8), 0
        offset = self.used // like.itemsize
        strides = torch.empty(shape, device="meta").stride()
        self.used += math.ceil(size / 64) * 64
        # set_ and not a view: autograd counts the versions of views together
        return like.new_empty(0).set_(self.space.untyped_storage(), offset, shape, strides)


class _Collector:
    """Collects the uses of each parameter in one pass, and emits a Score once every use of it was seen.

    visit: receives the scores in the backward pass; None during the forward pass.
    recomputed: modules whose forward is called again in the backward pass.
    """

    def __init__(self, measured: dict[str, nn.Parameter], owners: Owners, recomputed: set[nn.Module]):
        self.measured, self.owners, self.recomputed = measured, owners, recomputed
        self.names = {owner: name for name, owned in owners.items() for owner in owned}
        self.calls: dict[str, int] = {}
        self.uses: dict[str, list[Use] | list[Routed]] = {}
        self.vectors: dict[str, Tensor] = {}
        self.leaves: dict[tuple[str, int], Tensor] = {}
        self.outputs: dict[nn.Module, tuple[Tensor, int] | None] = {}
        self.arena = _Arena()
        self.visit: Visitor | None = None
        self.batch = self.length = 0
        self.given: set[str] = set()
        self.half = False  # whether products were taken in 16 bits: FSDP2 casts the weights it gathers, if asked to

    def begin(self, _: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Note the numbers of rollouts, and of tokens of each, when the model is called."""
        ids = keywords.get("input_ids")
        self.batch, self.length = (ids if ids is not None else arguments[0]).shape

    def by_rollout(self, x: Tensor) -> bool:
        """Whether an array has the rollouts as its first axis, or all their tokens; not, say, those of one expert."""
        return len(x) == (self.batch if x.dim() > 2 else self.batch * self.length) and x.dim() > 1

    def place_for_output(self, module: nn.Module, like: Tensor, shape: tuple[int, ...]) -> Tensor | None:
        """Memory for the output of a linear layer's first call, if it will be called again in the backward pass."""
        retained = self.visit is None and module in self.recomputed and module not in self.outputs
        return self.arena.empty(like, shape) if retained else None

    def keep_output(self, module: nn.Module, out: Tensor) -> None:
        """Keep a linear layer's output for its call in the backward pass; not if it is called several times."""
        if self.visit is None and module in self.recomputed:
            self.outputs[module] = None if module in self.outputs else (out.detach(), out._version)

    def known_output(self, module: nn.Module) -> tuple[Tensor, ...]:
        """The layer's output of the forward pass, returned once; empty where none was kept or the model overwrote it.

        It comes in a tuple, since autograd would take a bare tensor for a differentiable input.
        """
        output = self.outputs.pop(module, None) if self.visit is not None else None
        return () if output is None or output[0]._version != output[1] else (output[0],)

    def kept_bytes(self) -> int:
        """Bytes of the outputs kept."""
        return sum(output[0].nbytes for output in self.outputs.values() if output is not None)

    def called(self, name: str) -> None:
        """Count a use of a parameter in the forward pass; recomputation in the backward pass does not count."""
        if self.visit is None:
            self.calls[name] = self.calls.get(name, 0) + 1

    def received(self, name: str, use: Use | Routed) -> None:
        """Take a use of a parameter reported by the backward pass."""
        waiting: list[Any] = self.uses.setdefault(name, [])
        waiting.append(use)
        if len(waiting) == self.calls[name]:
            self.emit(name)

    def emit(self, name: str) -> None:
        """Give the matrix's Score to the visitor, or those of a stack's experts."""
        uses: tuple[Any, ...] = tuple(self.uses.pop(name))
        assert self.visit is not None
        self.given.add(name)
        if isinstance(uses[0], Routed):
            count, rows, columns = self.measured[name].shape
            for score in experts.scores(name, uses, (count, rows, columns), self.batch):
                self.visit(score)
            return
        kind = "embedding" if all(use.lookup for use in uses) else "linear"
        self.visit(Score(name, kind, oriented_shape(self.owners[name], self.measured[name]), uses))

    def vector(self, name: str, gradient: Tensor) -> None:
        """Add per-rollout gradients (B, d) of a vector."""
        before = self.vectors.get(name)
        self.vectors[name] = gradient if before is None else before + gradient

    def leaf(self, module: nn.Module, key: str, rank: int) -> Tensor:
        """Copies of a vector, one per rollout, (B, 1, …, d) with `rank` axes, each of which gets its own gradient."""
        parameter = module._parameters[key]
        assert parameter is not None
        owner = (self.names[module, key], rank)
        if owner not in self.leaves:
            shape = (self.batch, *[1] * (rank - 2), len(parameter))
            copies = parameter.detach().expand(self.batch, -1).reshape(shape).clone()
            self.leaves[owner] = copies.requires_grad_()
        return self.leaves[owner]

    def forget(self) -> None:
        """Release all arrays: the graph of a pass that ended early may still refer to this object."""
        for stored in (self.outputs, self.uses, self.vectors, self.leaves):
            stored.clear()
        self.arena = _Arena()

    def finish(self) -> None:
        """Emit the vectors, and matrices that had fewer uses in the backward pass than in the forward pass."""
        for (name, _), leaf in self.leaves.items():
            if leaf.grad is not None:
                gradient = leaf.grad.reshape(self.batch, -1)
                self.vector(name, gradient.to(torch.promote_types(leaf.dtype, torch.float32)))
        for name in list(self.uses):
            self.emit(name)
        assert self.visit is not None
        for name, gradient in self.vectors.items():
            self.given.add(name)
            self.visit(Score(name, "vector", (1, gradient.shape[1]), direct=gradient))


@contextmanager
def collecting(
    model: nn.Module, measured: dict[str, nn.Parameter], owners: Owners, recomputed: set[nn.Module]
) -> Iterator[_Collector]:
    """Replace the forward of every measured module inside the `with` block; see `_Collector`."""
    owners = {name: owners[name] for name in measured}
    collector = _Collector(measured, owners, recomputed)
    modules: dict[nn.Module, list[str]] = {}
    for owned in owners.values():
        for module, key in owned:
            modules.setdefault(module, []).append(key)
    with ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(collector.begin, with_kwargs=True).remove)
        for module, keys in modules.items():
            stack.enter_context(replaced_forward(module, _replacement(module, keys, collector)))
        stack.callback(collector.forget)
        yield collector


def _replacement(module: Any, keys: list[str], collector: _Collector) -> Callable[..., Any]:
    if type(module).forward is nn.Linear.forward or _transposed(module):
        return _Linear(module, keys, collector)
    if experts.is_stack(module):
        return experts.StackForward(module, keys, collector)
    return _Own(module, keys, collector)


def _rows(array: Tensor, batch: int) -> Tensor:
    """The array as (B, L, d) in at least float32, whatever leading axes the layer saw."""
    shaped = array.reshape(batch, -1, array.shape[-1])
    return shaped.to(torch.promote_types(array.dtype, torch.float32))


class _Linear:
    """The forward of a linear layer, `keys` of which (weight, bias) are measured."""

    def __init__(self, module: Any, keys: list[str], collector: _Collector):
        self.module, self.collector = module, collector
        self.weight, self.bias = (collector.names[module, key] if key in keys else None for key in ("weight", "bias"))
        self.turned = _transposed(module)
        self.own: Callable[[Tensor], Tensor] = module.forward

    def __call__(self, x: Tensor) -> Tensor:
        if not self.collector.by_rollout(x):
            return self.own(x)
        output = self.collector.known_output(self.module)
        self.collector.half |= self.module.weight.itemsize == 2
        if self.weight is not None:
            self.collector.called(self.weight)
        shape = (*x.shape[:-1], self.module.weight.shape[1 if self.turned else 0])
        target = None if output else self.collector.place_for_output(self.module, x, shape)
        places = () if target is None else (target,)
        out: Tensor = _Matrix.apply(x, self.module.weight, self.module.bias, self.turned, self.report, output, places)
        self.collector.keep_output(self.module, out)
        return out

    def report(self, x: Tensor, gradient: Tensor) -> None:
        """Take the layer's input and the gradient at its output from the backward pass."""
        rows = _rows(gradient, self.collector.batch)
        if self.bias is not None:
            self.collector.vector(self.bias, rows.sum(1))
        if self.weight is not None:
            self.collector.received(self.weight, Use(rows, _rows(x, self.collector.batch)))


class _Own:
    """A module's own forward, with the uses of its matrices observed and a copy of its vectors for every rollout."""

    def __init__(self, module: Any, keys: list[str], collector: _Collector):
        self.module, self.collector, self.own = module, collector, module.forward
        self.matrices = [key for key in keys if module._parameters[key].dim() > 1]
        self.vectors = [key for key in keys if key not in self.matrices]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        module = self.module
        originals = {key: module._parameters[key] for key in self.vectors}
        matrices = {key: module._parameters[key] for key in self.matrices}
        uses = _Uses({self.collector.names[module, key]: array for key, array in matrices.items()}, self)
        if not originals:
            with uses:
                return self.own(*arguments, **keywords)
        x = next(each for each in (*arguments, *keywords.values()) if isinstance(each, Tensor))
        module._parameters.update({key: self._copies(key, x) for key in self.vectors})
        try:
            with uses:
                return self.own(*arguments, **keywords)
        except (RuntimeError, TypeError, ValueError, IndexError):
            module._parameters.update(originals)
            self.own(*arguments, **keywords)  # raises again what has nothing to do with the copies
            names = tuple(self.collector.names[module, key] for key in self.vectors)
            raise Unmeasured(
                f"{type(module).__name__} does not take a vector for every rollout, so {', '.join(names)} cannot be "
                "measured; freeze it to measure the rest",
                names,
            ) from None
        finally:
            module._parameters.update(originals)

    def _copies(self, key: str, x: Tensor) -> Tensor:
        """The copies of a vector that belong to an input (B, …, d), or to one that is flat (B·L, d)."""
        tokens, rest = divmod(len(x), self.collector.batch)
        if rest or (tokens > 1 and x.dim() > 2):
            raise Unmeasured(
                f"{type(self.module).__name__} mixes the rollouts of a batch before its weights; freeze it",
                tuple(self.collector.names[self.module, each] for each in self.vectors),
            )
        copies = self.collector.leaf(self.module, key, x.dim())
        return copies if tokens == 1 else copies.repeat_interleave(tokens, 0)

    def looked_up(self, name: str, ids: Tensor, weight: Tensor, padding: int | None) -> Tensor | None:
        """Rows of an embedding for ids (B, L), or for positions (L,) or (1, L) of every rollout; (B, L, d) always.

        padding: id without a gradient. None where the ids are not those of every token.
        """
        batch, length = self.collector.batch, self.collector.length
        if ids.shape in ((length,), (1, length)):
            ids = ids.expand(batch, -1)
        if ids.shape != (batch, length):
            return None
        self.collector.called(name)

        def report(ids: Tensor, gradient: Tensor) -> None:
            skipped = -1 if padding is None else padding % len(weight)
            self.collector.received(name, Use(ids, _rows(gradient, batch), skipped))

        out: Tensor = _Lookup.apply(ids, weight, report)
        return out

    def multiplied(self, name: str, x: Tensor, weight: Tensor) -> Tensor:
        """The product of a linear layer without its bias."""
        self.collector.called(name)
        self.collector.half |= weight.itemsize == 2

        def report(x: Tensor, gradient: Tensor) -> None:
            batch = self.collector.batch
            self.collector.received(name, Use(_rows(gradient, batch), _rows(x, batch)))

        out: Tensor = _Matrix.apply(x, weight, None, False, report, (), ())
        return out


class _Uses(TorchFunctionMode):
    """Inside the `with` block, the functions of torch that a module calls with its parameters report their use.

    matrices: the parameters that are measured, by name. Their use in any other function is left to autograd.
    """

    def __init__(self, matrices: dict[str, Tensor], owner: _Own):
        super().__init__()
        self.matrices, self.owner = matrices, owner

    def __torch_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        keywords = keywords or {}
        if (
            function in _PRODUCTS
            and len(arguments) == 2
            and (name := self._turned(arguments[1]))
            and self.owner.collector.by_rollout(arguments[0])
        ):
            return self.owner.multiplied(name, arguments[0], self.matrices[name])
        if function in _MEANINGS:
            bound = _MEANINGS[function].bind(*arguments, **keywords).arguments
            weight: Any = bound.get("weight")
            bias = bound.get("bias")
            name = self._name(weight)
            if function is F.embedding and name:
                out = self.owner.looked_up(name, bound["input"], weight, bound.get("padding_idx"))
                return function(*arguments, **keywords) if out is None else out
            if function is F.linear and (name or _copied(bias, 1)):
                x = bound["input"]
                name = name if self.owner.collector.by_rollout(x) else None
                out = self.owner.multiplied(name, x, weight) if name else F.linear(x, weight)
                return out if bias is None else out + _flat_as(out, bias)
            if function in _NORMS and (_copied(weight, 1) or _copied(bias, 1)):
                return _norm(function, bound, weight, bias)
        return function(*arguments, **keywords)

    def _name(self, array: Any) -> str | None:
        return next((name for name, own in self.matrices.items() if own is array), None)

    def _turned(self, array: Any) -> str | None:
        """The matrix whose transpose, without a copy, this is."""
        if not isinstance(array, Tensor) or array.dim() != 2:
            return None
        layout = array.data_ptr(), array.shape[::-1], array.stride()[::-1]
        own = ((name, each.data_ptr(), each.shape, each.stride()) for name, each in self.matrices.items())
        return next((name for name, *same in own if tuple(same) == layout), None)


def _copied(vector: Tensor | None, rank: int) -> bool:
    """Whether a vector, which has `rank` axes, was copied for every rollout."""
    return vector is not None and vector.dim() > rank


def _flat_as(out: Tensor, bias: Tensor) -> Tensor:
    """Copies (B, 1, R) of a bias as rows of an output (B·L, R) of a module that flattens its input itself."""
    if bias.dim() != 3 or out.dim() != 2:
        return bias
    return bias[:, 0].repeat_interleave(len(out) // len(bias), 0)


def _norm(function: Any, bound: dict[str, Any], weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """A norm of torch with its weights applied afterwards, since its own must not have a batch axis."""
    bare: Tensor = function(bound["input"], bound["normalized_shape"], eps=bound.get("eps", _NORMS[function]))
    out = bare if weight is None else bare * weight
    return out if bias is None else out + bias


_NORMS: dict[Any, float | None] = {F.layer_norm: 1e-5, torch.layer_norm: 1e-5, F.rms_norm: None, torch.rms_norm: None}
"""Norms of torch, with the eps that each adds unless told otherwise."""


def _meaning(words: str) -> Signature:
    return Signature([Parameter(word, Parameter.POSITIONAL_OR_KEYWORD, default=None) for word in words.split()])


_PRODUCTS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)

_MEANINGS = {
    F.embedding: _meaning("input weight padding_idx max_norm norm_type scale_grad_by_freq sparse"),
    F.linear: _meaning("input weight bias"),
    F.layer_norm: _meaning("input normalized_shape weight bias eps"),
    torch.layer_norm: _meaning("input normalized_shape weight bias eps cudnn_enable"),
    F.rms_norm: _meaning("input normalized_shape weight eps"),
    torch.rms_norm: _meaning("input normalized_shape weight eps"),
}
"""What the arguments of a function are called."""


class _Matrix(torch.autograd.Function):
    """A linear layer whose backward gives the gradient of its input, and reports factors instead of a weight gradient.

    known: the output, if it was kept. place: memory for the output, if it is to be kept.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        transposed: bool,
        report: Any,
        output: tuple[Tensor, ...],
        target: tuple[Tensor, ...],
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.transposed, ctx.report = transposed, report
        if output:
            return output[0]
        return _product(x, weight if transposed else weight.mT, bias, *target)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        ctx.report(x.detach(), gradient)
        passed = gradient @ (weight.mT if ctx.transposed else weight) if ctx.needs_input_grad[0] else None
        return passed, None, None, None, None, None, None


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor | None = None) -> Tensor:
    """x (…, C) times a weight (C, R), plus a bias (R,); written to `target` (…, R) where that is given."""
    if target is None:
        return F.linear(x, weight.mT, bias)
    flat, out = x.reshape(-1, x.shape[-1]), target.view(-1, target.shape[-1])
    if bias is None:
        torch.mm(flat, weight, out=out)
    else:
        torch.addmm(bias, flat, weight, out=out)
    return target


class _Lookup(torch.autograd.Function):
    """An embedding whose backward reports factors instead of a weight gradient."""

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
