"""Sparsity of a gradient over tokens and over parameters.

Of non-negative numbers x_1 … x_n (sizes of tokens' scores, of gradient entries):

    gini      Σ_i Σ_j |x_i − x_j| / (2 n² mean)      0 all equal, → 1 one holds all
    hoyer     (√n − ‖x‖₁/‖x‖₂) / (√n − 1)            0 all equal, 1 one holds all (Hoyer 2004)
    top_q     share of Σx² in the largest q %
    below_τ   share of entries smaller than τ · max

Updates: a weight kept in bfloat16 moves only when the step exceeds half the distance to the next representable
number. Every measure is NaN for empty and for all-zero input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from grposcope.core.estimate import Estimate

SAMPLE = 2**20
"""Gradient entries, over all layers, from which the parameter-level measures are taken."""
PARTS = 11
"""Interleaved parts of a sample, for its standard errors; prime, for the reason given in `_stride`."""
TOPS = (1, 5, 20)
BELOW = (0.1, 0.01, 0.001)


def _hoyer(sizes: Tensor) -> float:
    """Hoyer's sparsity of non-negative numbers; NaN for fewer than two."""
    x = sizes.double().flatten()
    norm = float(torch.linalg.vector_norm(x))
    if len(x) < 2 or not norm > 0:
        return math.nan
    return (math.sqrt(len(x)) - float(x.abs().sum()) / norm) / (math.sqrt(len(x)) - 1)


def measures(sizes: Tensor) -> dict[str, float]:
    """Every measure of the absolute values of `sizes`, by name."""
    x = _ordered(sizes.abs())
    return _measures(x, float(x[-1]) if len(x) else math.nan)


def _measures(ordered: Tensor, largest: float) -> dict[str, float]:
    """Every measure of sizes in increasing order; `largest` is the maximum of all sizes of which these are a sample."""
    values = {"gini": _gini(ordered), "hoyer": _hoyer(ordered), **{f"top_{q}": _top_share(ordered, q) for q in TOPS}}
    for t in BELOW:
        bound = ordered.new_tensor(t * largest)
        values[f"below_{t}"] = int(torch.searchsorted(ordered, bound)) / len(ordered) if largest > 0 else math.nan
    return values


def _ordered(sizes: Tensor) -> Tensor:
    """The numbers in increasing order, float64; sorted by NumPy on a CPU, which is several times as fast."""
    flat = sizes.flatten()
    return (torch.from_numpy(np.sort(flat.numpy())) if flat.device.type == "cpu" else flat.sort().values).double()


def _gini(ordered: Tensor) -> float:
    """Gini index of non-negative numbers in increasing order."""
    n, total = len(ordered), float(ordered.sum())
    if n == 0 or not total > 0:
        return math.nan
    rank = torch.arange(1, n + 1, dtype=torch.float64, device=ordered.device)
    return float(((2 * rank - n - 1) * ordered).sum() / (n * total))


def _top_share(ordered: Tensor, percent: float) -> float:
    """Share of Σx² held by the largest `percent` % of the numbers, at least one of them."""
    energy = ordered.square()
    total = float(energy.sum())
    if not total > 0:
        return math.nan
    return float(energy[-max(1, math.ceil(percent / 100 * len(energy) - 1e-9)) :].sum()) / total


def _moved_in_bfloat16(weights: Tensor, step: Tensor) -> float:
    """Share of weights kept in bfloat16 that θ − step would change."""
    rounded = weights.to(torch.bfloat16)
    moved = (rounded.float() - step.float()).to(torch.bfloat16)
    return float((moved != rounded).double().mean())


@dataclass(frozen=True)
class EntryNorms:
    """Norms of a gradient's entries: largest absolute value, sum of absolute values, sum of squares."""

    largest: float
    sum_abs: float
    sum_square: float

    @classmethod
    def of(cls, rows: Tensor) -> EntryNorms:
        """Norms of entries (n, C); each row is summed in its own precision, the rows in float64."""
        sizes = rows.abs()
        squares = torch.linalg.vector_norm(rows, dim=1).double().square()
        return cls(float(sizes.amax()), float(sizes.sum(1).double().sum()), float(squares.sum()))

    @classmethod
    def together(cls, pieces: Sequence[EntryNorms]) -> EntryNorms:
        """Norms of a gradient from those of its pieces."""
        largest = float(np.max([piece.largest for piece in pieces]))  # NaN if one is
        return cls(largest, math.fsum(p.sum_abs for p in pieces), math.fsum(p.sum_square for p in pieces))

    @property
    def norm(self) -> float:
        """Euclidean norm."""
        return math.sqrt(self.sum_square)


@dataclass(frozen=True)
class LayerEntries:
    """Every n-th entry of a layer's gradient, the number of all its entries, and their norms.

    weights: the layer's weights at the same places, needed with a learning rate only.
    """

    gradient: Tensor
    weights: Tensor | None
    entries: int
    norms: EntryNorms


class EntrySample:
    """Parameter-level sparsity of one gradient, from every n-th of its entries, layer by layer.

    total: the number of entries of all layers. learning_rate: adds the share of weights kept in bfloat16 that one
    step would change, of plain gradient descent (`visible_sgd`) and of Adam's first step (`visible_adam`, of size
    the learning rate wherever the gradient is not 0).
    """

    def __init__(self, total: int, learning_rate: float | None = None):
        self.stride, self.learning_rate = _stride(total), learning_rate
        self.layers: list[LayerEntries] = []

    def sampled(self, layer: Tensor, before: int) -> Tensor:
        """Every n-th entry of a layer, or of some rows of it; `before` entries precede these."""
        return layer.reshape(-1)[-before % self.stride :: self.stride].clone()

    def take(self, gradient: Tensor, before: int, norms: EntryNorms, weights: Tensor | None = None) -> LayerEntries:
        """The sampled entries of one layer, or of some rows of it; `weights` are those that `sampled` gave."""
        return LayerEntries(self.sampled(gradient, before), weights, gradient.numel(), norms)

    def add(self, layer: LayerEntries) -> None:
        """Append a layer. Results are the same to the last bit only if layers come in the same order."""
        self.layers.append(layer)

    def measures(self) -> dict[str, Estimate]:
        """Every measure by name, with its sampling error over interleaved parts; `hoyer` is exact."""
        if not self.layers:
            return {}
        norms = EntryNorms.together([layer.norms for layer in self.layers])
        if not norms.sum_square > 0:
            return {}
        entries = sum(layer.entries for layer in self.layers)
        gradient = torch.cat([layer.gradient for layer in self.layers])
        kept = [layer.weights.to(gradient) for layer in self.layers if layer.weights is not None]
        weights = torch.cat(kept) if kept else None
        whole = self._of(gradient, weights, norms.largest)
        errors = dict.fromkeys(whole, 0.0)
        if len(gradient) < entries:
            parts = [slice(p, None, PARTS) for p in range(PARTS)]
            split = [self._of(gradient[p], None if weights is None else weights[p], norms.largest) for p in parts]
            errors = {name: Estimate.mean([half[name] for half in split]).se for name in whole}
        root = math.sqrt(entries)
        whole["hoyer"] = (root - norms.sum_abs / norms.norm) / (root - 1) if root > 1 else math.nan
        errors["hoyer"] = 0.0
        return {name: Estimate(value, errors[name], len(gradient)) for name, value in whole.items()}

    def _of(self, gradient: Tensor, weights: Tensor | None, largest: float) -> dict[str, float]:
        """Every measure of a sample of entries."""
        values = _measures(_ordered(gradient.abs()), largest)
        if self.learning_rate is not None and weights is not None:
            values["visible_sgd"] = _moved_in_bfloat16(weights, self.learning_rate * gradient)
            values["visible_adam"] = _moved_in_bfloat16(weights, self.learning_rate * gradient.sign())
        return values


def _stride(total: int) -> int:
    """Distance between sampled entries: about total / SAMPLE, and prime, so that every column of a layer is met."""
    stride = max(1, total // SAMPLE)
    while any(stride % divisor == 0 for divisor in range(2, math.isqrt(stride) + 1)):
        stride += 1
    return stride
