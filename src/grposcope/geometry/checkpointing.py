"""Activations of the blocks of a model are made again in the backward pass instead of being kept.

Checkpointing a whole block would cost another forward pass. Most of that is its linear layers, so their
outputs are kept (`capture` does that) and only what lies between them is done again: norms, rotations,
attention, gates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

PIECE = 64 * 2**20
"""Bytes of a piece of memory of a `Shelf`: so many that the C library gives it back at once (glibc: above 32 MiB)."""


class Shelf:
    """Room for arrays one after the other, apart from those that are soon freed.

    Else, on a CPU, what is kept comes to lie between what is not, and the C library cannot fill the holes.
    """

    def __init__(self) -> None:
        self.space, self.used = torch.empty(0, dtype=torch.uint8), 0

    def room(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """An array of this shape and of the kind of `like`, to be written; a piece is freed with the last one in it."""
        if like.device.type != "cpu":
            return like.new_empty(shape)
        size = math.prod(shape) * like.itemsize
        if self.used + size > self.space.nbytes:
            self.space, self.used = torch.empty(max(PIECE, size), dtype=torch.uint8), 0
        place = self.used // like.itemsize
        strides = torch.empty(shape, device="meta").stride()
        self.used += math.ceil(size / 64) * 64
        return like.new_empty(0).set_(self.space.untyped_storage(), place, shape, strides)  # no view of others


def blocks(model: nn.Module) -> list[nn.Module]:
    """The layers of a Hugging Face model that can be checkpointed; none where it is switched on already."""
    if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
        return []
    return [m for m in model.modules() if any(c.__name__ == "GradientCheckpointingLayer" for c in type(m).__mro__)]


@contextmanager
def recomputed(found: list[nn.Module]) -> Iterator[None]:
    """Checkpoint these blocks for the time of one pass."""
    with ExitStack() as stack:
        for block in found:
            stack.enter_context(replaced(block, _checkpointed(block.forward)))
        yield


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Without a graph of the first time, where gradients come in through positional arguments alone.

    A graph is thousands of small objects between large arrays, whose room could then not be used again.
    """

    def run(*arguments: Any, **keywords: Any) -> Any:
        named = any(isinstance(x, Tensor) and x.requires_grad for x in tree_leaves(keywords))
        floating = [isinstance(x, Tensor) and x.is_floating_point() for x in arguments]
        if named or not any(floating):
            return checkpoint(forward, *arguments, use_reentrant=False, preserve_rng_state=False, **keywords)
        if not any(x.requires_grad for x, yes in zip(arguments, floating, strict=True) if yes):
            arguments = tuple(
                x.detach().requires_grad_() if yes else x for x, yes in zip(arguments, floating, strict=True)
            )
        return checkpoint(partial(forward, **keywords), *arguments, use_reentrant=True, preserve_rng_state=False)

    return run


@contextmanager
def replaced(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Another forward for a module, which gets its own back in the end."""
    own = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        if own is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = own
