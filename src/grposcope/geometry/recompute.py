"""Activations of the blocks of a model are made again in the backward pass instead of being kept.

Checkpointing a whole block would cost another forward pass. Most of that is its linear layers, so their
outputs are kept (`capture` does that) and only what lies between them is done again: norms, rotations,
attention, gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def blocks(model: nn.Module) -> list[nn.Module]:
    """The layers of a Hugging Face model that can be checkpointed; none where it is switched on already."""
    if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
        return []
    return [m for m in model.modules() if any(c.__name__ == "GradientCheckpointingLayer" for c in type(m).__mro__)]


@contextmanager
def recomputed(found: list[nn.Module]) -> Iterator[Callable[[], int]]:
    """Checkpoint these blocks for the time of one pass; yields how many bytes of their inputs are kept so far."""
    inputs: list[int] = []

    def wrapped(forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **keywords: Any) -> Any:
            inputs.append(sum(x.nbytes for x in arguments if isinstance(x, torch.Tensor)))
            return checkpoint(forward, *arguments, use_reentrant=False, preserve_rng_state=False, **keywords)

        return run

    with ExitStack() as stack:
        for block in found:
            stack.enter_context(replaced(block, wrapped(block.forward)))
        yield lambda: sum(inputs)


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
