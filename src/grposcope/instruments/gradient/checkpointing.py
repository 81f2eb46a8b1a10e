"""Recompute the activations of a model's blocks in the backward pass instead of keeping them.

Checkpointing a whole block would cost another forward pass. Most of that is its linear layers, so `hooks` keeps
their outputs and only what lies between them is recomputed: norms, rotations, attention, gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from grposcope.lab.policies import recomputes_activations


def blocks(model: nn.Module) -> list[nn.Module]:
    """The layers of a Hugging Face model that can be checkpointed; none where checkpointing is switched on already."""
    return [] if recomputes_activations(model) else every_block(model)


def every_block(model: nn.Module) -> list[nn.Module]:
    """The layers of a Hugging Face model that can be checkpointed."""
    return [m for m in model.modules() if any(c.__name__ == "GradientCheckpointingLayer" for c in type(m).__mro__)]


@contextmanager
def recomputed(blocks: list[nn.Module]) -> Iterator[None]:
    """Checkpoint these blocks inside the `with` block."""
    with ExitStack() as stack:
        for block in blocks:
            stack.enter_context(replaced_forward(block, _checkpointed(block.forward)))
        yield


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The forward with checkpointing: reentrant where gradients come in through positional arguments alone.

    Reentrant checkpointing builds no graph the first time. A graph is thousands of small objects between large
    arrays, whose memory could then not be reused.
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
def replaced_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Give a module another forward inside the `with` block."""
    own = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        if own is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = own
