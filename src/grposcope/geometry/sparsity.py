"""How unevenly a gradient is spread over tokens and over parameters.

Of non-negative numbers x_1 … x_n (sizes of tokens' scores, of gradient entries):

    gini      Σ_i Σ_j |x_i − x_j| / (2 n² mean)      0 all equal, → 1 one holds all
    hoyer     (√n − ‖x‖₁/‖x‖₂) / (√n − 1)            0 all equal, 1 one holds all (Hoyer 2004)
    top_q     share of Σx² in the largest q %
    below_τ   share of entries smaller than τ · max

Updates: a weight kept in bfloat16 moves only when the
step exceeds half the distance to the next representable number.

Of nothing, or of zeros only, each measure is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from grposcope.records import Estimate

SAMPLE = 2**20
"""Gradient entries, over all layers, that the parameter-level measures are taken from."""
PARTS = 11
"""Into so many parts a sample is divided for its standard errors; prime, see `_stride`."""
TOPS = (1, 5, 20)
BELOW = (0.1, 0.01, 0.001)


def gini(sizes: Tensor) -> float:
    """Gini index of non-negative numbers."""
    return _gini(_ordered(sizes))


def hoyer(sizes: Tensor) -> float:
    """Hoyer's sparsity of non-negative numbers; NaN for fewer than two."""
    x = sizes.double().flatten()
    norm = float(torch.linalg.vector_norm(x))
    if len(x) < 2 or not norm > 0:
        return math.nan
    return (math.sqrt(len(x)) - float(x.abs().sum()) / norm) / (math.sqrt(len(x)) - 1)


def top_share(sizes: Tensor, percent: float) -> float:
    """Share of Σx² held by the largest `percent` % of the numbers, at least one of them."""
    return _top_share(_ordered(sizes), percent)


def measures(sizes: Tensor) -> dict[str, float]:
    """Every measure by name."""
    x = _ordered(sizes.abs())
    return _measures(x, float(x[-1]) if len(x) else math.nan)


def _measures(ordered: Tensor, largest: float) -> dict[str, float]:
    """Of sizes in increasing order, which may be a sample of those with this maximum."""
    found = {"gini": _gini(ordered), "hoyer": hoyer(ordered), **{f"top_{q}": _top_share(ordered, q) for q in TOPS}}
    for t in BELOW:
        bound = ordered.new_tensor(t * largest)
        found[f"below_{t}"] = int(torch.searchsorted(ordered, bound)) / len(ordered) if largest > 0 else math.nan
    return found


def _ordered(sizes: Tensor) -> Tensor:
    """In increasing order, float64; on a CPU by NumPy, which is several times as fast."""
    flat = sizes.flatten()
    return (torch.from_numpy(np.sort(flat.numpy())) if flat.device.type == "cpu" else flat.sort().values).double()


def _gini(ordered: Tensor) -> float:
    n, total = len(ordered), float(ordered.sum())
    if n == 0 or not total > 0:
        return math.nan
    rank = torch.arange(1, n + 1, dtype=torch.float64, device=ordered.device)
    return float(((2 * rank - n - 1) * ordered).sum() / (n * total))


def _top_share(ordered: Tensor, percent: float) -> float:
    energy = ordered.square()
    total = float(energy.sum())
    if not total > 0:
        return math.nan
    return float(energy[-max(1, math.ceil(percent / 100 * len(energy) - 1e-9)) :].sum()) / total


def visible(weights: Tensor, step: Tensor) -> float:
    """Share of weights kept in bfloat16 that θ − step would change."""
    kept = weights.to(torch.bfloat16)
    moved = (kept.float() - step.float()).to(torch.bfloat16)
    return float((moved != kept).double().mean())


@dataclass(frozen=True)
class Sizes:
    """Largest size, sum of sizes and of squares of the entries of a gradient."""

    largest: float
    sum_abs: float
    sum_square: float

    @classmethod
    def of(cls, rows: Tensor) -> Sizes:
        """Of entries (n, C); a row at a time in their own precision, the rows in float64."""
        sizes = rows.abs()
        squares = torch.linalg.vector_norm(rows, dim=1).double().square()
        return cls(float(sizes.amax()), float(sizes.sum(1).double().sum()), float(squares.sum()))

    @classmethod
    def together(cls, pieces: Sequence[Sizes]) -> Sizes:
        """Of a gradient from those of its pieces."""
        largest = max(piece.largest for piece in pieces)
        return cls(largest, math.fsum(p.sum_abs for p in pieces), math.fsum(p.sum_square for p in pieces))

    @property
    def norm(self) -> float:
        """Root of the sum of squares."""
        return math.sqrt(self.sum_square)


@dataclass(frozen=True)
class Part:
    """A layer's share of a `Sample`: every n-th entry of its gradient and weights, the number of entries, sizes."""

    gradient: Tensor
    weights: Tensor
    entries: int
    sizes: Sizes


class Sample:
    """Parameter-level sparsity of one gradient, given a layer at a time, from every n-th of its entries.

    total: entries to come. learning_rate: adds the share of weights kept in bfloat16 that one step would
    change, of plain gradient descent (`visible_sgd`) and of Adam's first (`visible_adam`, of size the
    learning rate wherever the gradient is not 0).
    """

    def __init__(self, total: int, learning_rate: float | None = None):
        self.stride, self.learning_rate = _stride(total), learning_rate
        self.parts: list[Part] = []

    def part(self, gradient: Tensor, weights: Tensor, before: int, sizes: Sizes) -> Part:
        """A layer's gradient, its weights, of the same shape, and its sizes; `before` entries of others came first."""
        flat = gradient.reshape(-1)
        place = slice(-before % self.stride, None, self.stride)
        kept = flat[place].clone()
        return Part(kept, weights.reshape(-1)[place].to(kept.dtype), len(flat), sizes)

    def add(self, part: Part) -> None:
        """The parts are to come in the same order whenever results are to be the same to the last bit."""
        self.parts.append(part)

    def measures(self) -> dict[str, Estimate]:
        """Every measure by name; errors are those of sampling, from interleaved parts. `hoyer` is exact."""
        if not self.parts or not (sizes := Sizes.together([part.sizes for part in self.parts])).sum_square > 0:
            return {}
        entries = sum(part.entries for part in self.parts)
        gradient = torch.cat([part.gradient for part in self.parts])
        weights = torch.cat([part.weights for part in self.parts])
        whole = self._of(gradient, weights, sizes.largest)
        errors = dict.fromkeys(whole, 0.0)
        if len(gradient) < entries:
            split = [self._of(gradient[p::PARTS], weights[p::PARTS], sizes.largest) for p in range(PARTS)]
            errors = {name: Estimate.mean([one[name] for one in split]).se for name in whole}
        root = math.sqrt(entries)
        whole["hoyer"] = (root - sizes.sum_abs / sizes.norm) / (root - 1) if root > 1 else math.nan
        errors["hoyer"] = 0.0
        return {name: Estimate(value, errors[name], len(gradient)) for name, value in whole.items()}

    def _of(self, gradient: Tensor, weights: Tensor, largest: float) -> dict[str, float]:
        """Every measure of some entries."""
        found = _measures(_ordered(gradient.abs()), largest)
        if self.learning_rate is not None:
            found["visible_sgd"] = visible(weights, self.learning_rate * gradient)
            found["visible_adam"] = visible(weights, self.learning_rate * gradient.sign())
        return found


def _stride(total: int) -> int:
    """Every so many of `total` entries: about SAMPLE of them, and prime, so that every column of a layer is met."""
    stride = max(1, total // SAMPLE)
    while any(stride % divisor == 0 for divisor in range(2, math.isqrt(stride) + 1)):
        stride += 1
    return stride
