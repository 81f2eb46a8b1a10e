"""Level shifts of any duration in autocorrelated noise: from a jump to a ramp over the rest of the series.

Method of this project; no publication.

A shift that begins at row s and takes w rows is the mean of the w steps that begin at s, …, s + w − 1. So its inner
product with a whitened series is a difference of twice summed values, and all candidates of a noise cost O(n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, idct
from scipy.special import fdtrc, logsumexp

from grposcope.maths.timeseries.noise import Array, Design, posterior

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ShiftCandidates:
    """C level shifts to be compared: first row (C,), duration in rows (C,), whitened squared length (M, C) per noise.

    design: the curves that a shift is added to.
    """

    start: Ints
    width: Ints
    squares: Array
    design: Design


@dataclass(frozen=True)
class LevelShift:
    """The likeliest shift, its p-value times the number of candidates, its size; posterior (C,) over all of them."""

    p: float
    size: float
    start: int
    width: int
    posterior: Array


def candidates(n: int, edge: int) -> tuple[Ints, Ints]:
    """Starts and widths: widths 1, 2, 4, … up to n/4, starts a quarter of the width apart, `edge` rows free at the
    ends."""
    pairs, width = [], 1
    while width <= max(n // 4, 1):
        pairs += [(start, width) for start in range(edge, n - edge - width + 2, max(1, width // 4))]
        width *= 2
    start, widths = np.array(pairs).T
    return start, widths


def columns(n: int, start: Ints, width: Ints) -> Array:
    """Columns (C, n) of the shifts: 0 before, 1 after."""
    return np.clip((np.arange(n) - start[:, None] + 1) / width[:, None], 0, 1)


def library(design: Design, start: Ints, width: Ints) -> ShiftCandidates:
    """Prepare shifts that are added to the curves of `design` for `scan`."""
    z = dct(columns(len(design.x), start, width), axis=1, norm="ortho")
    squares = design.weights @ (z**2).T
    for weights, inverse, row in zip(design.weights, design.inverse, squares, strict=True):
        inner = z @ (weights[:, None] * design.z)
        row -= np.einsum("ci,ij,cj->c", inner, inverse, inner)
    return ShiftCandidates(start, width, np.maximum(squares, 1e-12), design)


def scan(shifts: ShiftCandidates, y: Array) -> LevelShift:
    """The likeliest shift of y (n,), the noises integrated out; p = 1 for a series that the design fits exactly."""
    design = shifts.design
    z = dct(y, norm="ortho")
    b, total = design.solve(z)
    rest = z - b @ design.z.T
    if (total <= 1e-12 * (design.weights * z**2).sum(1)).any():
        flat = np.full(len(shifts.start), 1 / len(shifts.start))
        return LevelShift(1.0, 0.0, int(shifts.start[0]), int(shifts.width[0]), flat)
    rows = idct(design.weights * rest, axis=1, norm="ortho")
    steps = np.cumsum(rows[:, ::-1], axis=1)[:, ::-1]
    sums = np.concatenate([np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)], axis=1)
    gains = (sums[:, shifts.start + shifts.width] - sums[:, shifts.start]) / shifts.width
    explained = np.minimum(gains**2 / shifts.squares, total[:, None])
    left = np.maximum(total[:, None] - explained, 1e-12 * total[:, None])
    df = design.df - 1
    evidence = design.base[:, None] - 0.5 * np.log(shifts.squares) - 0.5 * df * np.log(left)
    marginal = logsumexp(evidence, axis=0)
    best = int(np.argmax(marginal))
    noise = posterior(evidence[:, best])
    p = float(noise @ fdtrc(1, df, explained[:, best] / (left[:, best] / df)))
    size = float(noise @ (gains[:, best] / shifts.squares[:, best]))
    where = int(shifts.start[best]), int(shifts.width[best])
    return LevelShift(min(1.0, p * len(shifts.start)), size, *where, posterior(marginal))
