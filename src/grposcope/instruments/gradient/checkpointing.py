"""Recompute the activations of a model's blocks in the backward pass instead of keeping them.

Checkpointing a whole block would cost another forward pass. Most of that is its linear layers, so `hooks` keeps
their outputs and only what lies between them is recomputed: norms, rotations, attention, gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from grposcope.lab.policies import recomputes_activations


def blocks(model: nn.Module) -> list[nn.Module]:
    """The layers of a Hugging Face model that can be checkpointed; none where checkpointing is switched on already."""
    return [] if recomputes_activations(model) else every_block(model)


def every_block(model: nn.Module) -> list[nn.Module]:
    """The layers of a Hugging Face model that can be checkpointed."""
    return [m for m in model.modules() if any(c.__name__ == "GradientCheckpointingLayer" for c in type(m).__mro__)]


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
