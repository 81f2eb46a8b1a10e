"""How likely each shape is as a change of a series beside other changes (`onset`), under each noise and under all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import fdtrc

from grposcope.maths.timeseries.change_shapes import Shapes
from grposcope.maths.timeseries.noise import Array

ALIKE = 0.02
"""Share of its squared length that a shape has beyond the other changes, at least."""


@dataclass(frozen=True)
class ChangeScan:
    """Each shape as a change beside k others: gains and squares (M, C), the squares left without it (M,).

    alone (M, k): sizes of the others without it; taken (k, M, C): what each loses of its size where the shape has one.
    """

    shapes: Shapes
    gains: Array
    squares: Array
    total: Array
    base: Array
    df: int
    sign: int
    alone: Array
    taken: Array

    def explained(self, shape: slice | int = slice(None)) -> Array:
        """Squares that shapes explain beyond the others."""
        total = self.total if isinstance(shape, int) else self.total[:, None]
        return np.asarray(np.minimum(self.gains[:, shape] ** 2 / self.squares[:, shape], (1 - 1e-6) * total))

    @cached_property
    def evidence(self) -> Array:
        """Log-likelihood (M, C) of each shape under each noise, with its prior; none of those like the others."""
        left = np.maximum(self.total[:, None] - self.explained(), 1e-9).astype(np.float32)
        squares = np.log(self.squares.astype(np.float32))
        likely = self.base[:, None] + self.shapes.prior - 0.5 * squares - 0.5 * (self.df - 1) * np.log(left)
        allowed = (self.squares > ALIKE * self.shapes.squares) & (self.sign * self.gains >= 0)
        return np.where(allowed, likely, -1e6)

    @cached_property
    def marginal(self) -> Array:
        """The same (C,), all noises taken together."""
        evidence = self.evidence
        most = evidence.max()
        return np.asarray(np.log(np.exp((evidence - most).astype(np.float32)).sum(0, dtype=np.float64) + 1e-300) + most)

    @property
    def best(self) -> int:
        """The likeliest shape."""
        return int(np.argmax(self.marginal))

    def p(self, shape: int) -> float:
        """p-value of this shape, averaged over the noises, times the number of rows."""
        df, explained = self.df - 1, self.explained(shape)
        left = np.maximum(self.total - explained, 1e-9)
        evidence = self.base - 0.5 * np.log(np.maximum(self.squares[:, shape], 1e-9)) - 0.5 * df * np.log(left)
        weight = np.exp(evidence - evidence.max())
        return float(weight @ fdtrc(1, df, explained / (left / df)) / weight.sum()) * self.shapes.columns.shape[1]
