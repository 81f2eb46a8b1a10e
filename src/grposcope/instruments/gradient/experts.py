"""Stacks of experts: parameters (E, R, C), or their biases (E, R), of which every token uses those it is routed to.

    S_i[e] = Σ_{t of rollout i that expert e sees} b_t a_tᵀ    (a: a token before the product, b: the gradient after it)

The module's own forward runs, one expert after the other or all in one grouped product, and the products in which it
uses its stacks are observed. Experts see tokens of all rollouts mixed, so the rows of a product are traced to their
rollouts through the last index by which the module picked rows of its input. A use that cannot be traced is left to
autograd, and the parameter is then measured by `without_hook`. The self-check weighs rollouts differently, so that a
token given to the wrong rollout is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

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


_PRODUCTS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)
