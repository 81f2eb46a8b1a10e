"""Which share of the weights with a gradient a step of an optimiser changed, from some of them before and after it.

The comparison is exact, so that it tells what no curve does at once: a step that was thrown away, or taken on a copy of
the weights, changes none; in weights kept in bfloat16 most steps of a small learning rate are rounded away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

PARAMETERS, EACH = 8, 1024
"""Parameters that are looked at, evenly over the model, and values of each, evenly over it."""


class MovedWeights:
    """Some of the weights that have a gradient as they are now, to be compared with what they are after a step.

    parameters: those that are trained, of the model and not of the optimiser, which may hold others. Parts of weights
    that other processes have are not looked at.
    """

    def __init__(self, parameters: Iterable[Tensor]):
        trained = [weight for weight in parameters if weight.grad is not None and weight.numel()]
        chosen = trained[:: max(1, -(-len(trained) // PARAMETERS))]
        self._before = [(weight, _some(weight), _has_gradient(weight)) for weight in chosen]

    def share(self) -> float:
        """The share of these weights that are not what they were; NaN where there are none."""
        counts = [
            torch.stack([((_some(weight) != before) & asked).sum(), asked.sum()]).cpu()
            for weight, before, asked in self._before
        ]
        changed, asked = torch.stack(counts).sum(0).tolist() if counts else (0, 0)
        return changed / asked if asked else math.nan


def _some(weight: Tensor) -> Tensor:
    """A copy of at most EACH values of a weight, of the part that this process has."""
    own = weight.to_local() if hasattr(weight, "to_local") else weight
    flat = own.detach().reshape(-1)
    return flat[:: max(1, -(-len(flat) // EACH))].clone()


def _has_gradient(weight: Tensor) -> Tensor:
    """Of the same values, whether they are numbers whose gradient is another number than 0."""
    assert weight.grad is not None
    gradient = _some(weight.grad)
    return gradient.isfinite() & (gradient != 0) & ~_some(weight).isnan()
