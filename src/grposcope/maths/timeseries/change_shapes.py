"""Shapes that a change of a metric may have, and the noises that they are looked at under.

Steps, straight ramps, ways that bend upwards and exponential approaches (`onset`), as columns whitened under each noise
of `noise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from grposcope.maths.timeseries.noise import Array, Design, cosine_variances

Real = TypeVar("Real", np.float32, np.float64)

PHI, SHARES = (0.4, 0.7, 0.9, 0.97), (0.4, 1.0)
"""Noises that are integrated over, beside white noise."""

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Rows that a step or ramp takes."""

SEEN, COURSES = 0.08, 3
"""Share of the rows in which a course is seen before anything goes from it; curves whose sums are such courses."""

TIMES = (1.5, 3, 6, 12, 24)
"""Time constants of exponential approaches in rows."""


@dataclass(frozen=True)
class Noises:
    """What whitens rows of n values under each of M noises, and takes out the course (n, K) that is there anyway.

    roots (M, n), bases (M, n, K); base (M,): log-likelihood of each noise but for the squares that are left.
    """

    roots: Array
    bases: Array
    base: Array

    @property
    def df(self) -> int:
        """Degrees of freedom that the course leaves."""
        return self.bases.shape[1] - self.bases.shape[2]

    def whitened(self, rows: NDArray[Real]) -> NDArray[Real]:
        """Rows (R, n), whitened and without the course (M, R, n), in their own precision."""
        z = dct(rows, axis=1, norm="ortho")
        white = self.roots.astype(z.dtype)[:, None] * z
        for of_noise, basis in zip(white, self.bases.astype(z.dtype), strict=True):
            of_noise -= (of_noise @ basis) @ basis.T
        return np.asarray(white)


@dataclass(frozen=True)
class Shapes:
    """C shapes of a change of n rows: columns (C, n) from 0 to 1 at the last row, with log prior weights (C,).

    white (M, C, n): the columns whitened under each noise; squares (M, C): their squared lengths.
    """

    columns: Array
    prior: Array
    white: NDArray[np.float32]
    squares: Array

    @staticmethod
    def under(noises: Noises, columns: Array, prior: Array) -> Shapes:
        """The shapes, whitened."""
        white = noises.whitened(columns.astype(np.float32))
        return Shapes(columns, prior, white, np.maximum(np.einsum("mcn,mcn->mc", white, white), 1e-9).astype(float))


def shapes_beside(course: Array, first: int) -> tuple[Noises, Shapes]:
    """The shapes of a change from row `first` on, beside a level and the columns of a course (n, K)."""
    n = len(course)
    base = np.column_stack([np.ones(n), course])
    design = Design(base, variances=cosine_variances(n, phi=PHI, shares=SHARES)[0])
    roots = np.sqrt(design.weights)
    bases = np.array([np.linalg.qr(design.z * root[:, None])[0] for root in roots])
    noises = Noises(roots, bases, design.base)
    return noises, Shapes.under(noises, *_columns(n, first))


def _columns(n: int, first: int) -> tuple[Array, Array]:
    """Shapes of changes as columns (C, n) that end at 1, and the logarithms of their prior weights (C,).

    A start from row `first` on is as likely as any other, a duration by its logarithm, and so is each kind.
    """
    t = np.arange(n, dtype=np.float64)[None, :]
    shapes: list[Array] = []
    weights: list[float] = []
    for width, gap in zip(WIDTHS, np.diff(np.log([*WIDTHS, 128])), strict=True):
        every = max(width // 8, 1)
        start = np.arange(first, n - width + (width > 1), every, dtype=np.float64)[:, None]
        shapes.append(_ramps(t, start, width))
        weights += [gap * every] * len(start)
    to_end = np.arange(first, n - 2, dtype=np.float64)[:, None]
    for power in (1, 2):
        shapes.append((np.maximum(t - to_end + 1, 0) / (n - to_end)) ** power)
        weights += [0.5] * len(to_end)
    for time in TIMES:
        start = np.arange(first, n - int(time), dtype=np.float64)[:, None]
        shapes.append(_approaches(t, start, time))
        weights += [0.4] * len(start)
    return np.concatenate(shapes), np.log(weights)


def _ramps(t: Array, start: Array, width: Array | float) -> Array:
    ways = np.clip((t - start + 1) / width, 0, 1)
    return np.asarray(ways / ways[:, -1:])


def _approaches(t: Array, start: Array, time: Array | float) -> Array:
    ways = 1 - np.exp(-np.maximum(t - start + 1, 0) / time)
    return np.asarray(ways / ways[:, -1:])


def _bends(t: Array, start: Array, width: Array) -> Array:
    """Logistic curves from rows `start` on, of which nine tenths are within the middle 0.8 of the width."""
    ways = 1 / (1 + np.exp(np.clip(-(t - start + 1 - width / 2) * (7.4 / width), -30, 30)))
    ways = ways - ways[:, :1]
    return np.asarray(ways / ways[:, -1:])


def inners(shapes: Shapes, white: NDArray[np.floating]) -> Array:
    """Inner products (R, M, C) of shapes with whitened rows (M, R, n) under each noise."""
    products = shapes.white @ white.astype(np.float32).transpose(0, 2, 1)
    return np.ascontiguousarray(products.transpose(2, 0, 1), np.float64)


def finer(noises: Noises, column: Array) -> Shapes:
    """Shapes that differ less from the shape `column` (n,), and from one another, than those that are tried first."""
    t, start = np.arange(len(column), dtype=np.float64)[None, :], int(np.argmax(column > 0))
    lasts = max(int(np.argmax(column >= 0.9)) - start + 1, 1)
    at, factor = (each.reshape(-1, 1) for each in np.meshgrid(np.linspace(-0.6, 0.6, 15), np.geomspace(0.5, 2, 15)))
    width = np.maximum(lasts / 0.9 * factor, 1.0)
    begin = start + at * max(lasts, 2)
    time = np.maximum(0.45 * lasts * factor, 0.7)
    cell = max(lasts, 2) * 1.2 / 14 * np.log(2) / 7
    columns = np.concatenate([_ramps(t, begin, width), _approaches(t, begin, time), _bends(t, begin, width)])
    columns -= columns[:, :1]
    columns /= np.maximum(columns[:, -1:], 1e-9)
    prior = np.log(np.repeat([cell, 0.58 * cell, cell], len(at)))
    return Shapes.under(noises, columns, prior)
