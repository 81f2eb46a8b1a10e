"""Phases of a reward curve: straight pieces that join at change points, named slow start, rise, plateau or fall.

One, two or three pieces are fitted by least squares over a grid of change points; BIC chooses, with the sample
size shrunk to n(1 − ρ)/(1 + ρ) for autocorrelated noise. A change point's interval holds every position whose fit
is within 3.84 of the best in units of the noise (a profile likelihood at 95 %).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grposcope.records import Estimate
from grposcope.timeseries.noise import Array, autocorrelation
from grposcope.timeseries.reward_curve import clean

GRID = 30
CHI2 = 3.841458820694124
CLEAR = 3.0
"""Standard errors by which a slope must differ from 0: the pieces were chosen to look different."""
FLAT = 0.2
"""A piece is flat where its slope is below this share of the steepest."""


@dataclass(frozen=True)
class Phase:
    """A piece from step `begin` to `end`, its slope per step, and the 95 % interval of where it begins."""

    name: str
    begin: float
    end: float
    slope: Estimate
    begins_between: tuple[float, float]


def phases(steps: ArrayLike, reward: ArrayLike) -> tuple[Phase, ...]:
    """The pieces of a curve, in order; one flat piece where nothing stands out of the noise."""
    series = clean(steps, reward)
    t, y, n = series.steps, series.reward, len(series.reward)
    if series.constant:
        return (Phase("flat", float(t[0]), float(t[-1]), Estimate(0.0, math.nan, n, "constant reward"),
                      (float(t[0]), float(t[0]))),)  # fmt: skip
    margin = max(4, n // 20)
    inner = np.unique(t[np.unique(np.linspace(margin, n - 1 - margin, GRID).astype(int))])
    layouts: list[tuple[float, ...]] = [()]
    layouts += [(float(a),) for a in inner]
    layouts += [(float(a), float(b)) for a, b in itertools.combinations(inner, 2) if (np.searchsorted(t, b)
                - np.searchsorted(t, a)) >= margin]  # fmt: skip
    squares = np.array([_pieces(t, y, knots)[1] for knots in layouts])
    rough = _pieces(t, y, layouts[int(squares.argmin())])[2]
    rho = max(0.0, autocorrelation(rough))
    size = max(4.0, n * (1 - rho) / (1 + rho))
    counts = np.array([len(knots) for knots in layouts])
    bic = size * np.log(squares / n) + (2 + 2 * counts) * math.log(size)
    best = int(bic.argmin())
    knots = layouts[best]
    slopes = _slopes(t, y, knots, rho)
    same = [i for i, other in enumerate(layouts) if len(other) == len(knots)]
    close = [layouts[i] for i in same if size * math.log(squares[i] / squares[best]) <= CHI2]
    edges = (float(t[0]), *knots, float(t[-1]))
    found = []
    for i, slope in enumerate(slopes):
        range_ = (edges[0], edges[0]) if i == 0 else (min(k[i - 1] for k in close), max(k[i - 1] for k in close))
        found.append(Phase(_name(i, slopes), edges[i], edges[i + 1], slope, range_))
    return tuple(found)


def _basis(t: Array, knots: tuple[float, ...]) -> Array:
    centred = (t - t[0]) / (t[-1] - t[0])
    bends = [np.maximum(centred - (k - t[0]) / (t[-1] - t[0]), 0.0) for k in knots]
    return np.column_stack([np.ones_like(t), centred, *bends])


def _pieces(t: Array, y: Array, knots: tuple[float, ...]) -> tuple[Array, float, Array]:
    """Coefficients, sum of squares and residuals of the joined pieces."""
    basis = _basis(t, knots)
    gram = basis.T @ basis
    solution = np.linalg.solve(gram + 1e-12 * np.eye(len(gram)), basis.T @ y)
    residual = np.asarray(y - basis @ solution, dtype=np.float64)
    return np.asarray(solution, dtype=np.float64), max(float(residual @ residual), 1e-300), residual


def _slopes(t: Array, y: Array, knots: tuple[float, ...], rho: float) -> list[Estimate]:
    solution, squares, _ = _pieces(t, y, knots)
    basis, span, n = _basis(t, knots), float(t[-1] - t[0]), len(t)
    variance = squares / max(n - basis.shape[1], 1) * (1 + rho) / (1 - rho)
    covariance = variance * np.linalg.inv(basis.T @ basis)
    values = []
    for i in range(1, basis.shape[1]):
        pick = np.zeros(basis.shape[1])
        pick[1 : i + 1] = 1 / span
        values.append(Estimate(float(pick @ solution), float(math.sqrt(pick @ covariance @ pick)), n))
    return values


def _name(i: int, slopes: list[Estimate]) -> str:
    """What a piece is, next to the steepest one."""
    slope = slopes[i]
    steepest = max(slopes, key=lambda s: abs(s.value))
    flat = abs(slope.value) < CLEAR * slope.se or abs(slope.value) < FLAT * abs(steepest.value)
    if not flat:
        return "rise" if slope.value > 0 else "fall"
    later = [s.value for s in slopes[i + 1 :] if abs(s.value) > CLEAR * s.se]
    earlier = [s.value for s in slopes[:i] if abs(s.value) > CLEAR * s.se]
    if any(v > 0 for v in later) and not earlier:
        return "slow start"
    return "plateau" if any(v > 0 for v in earlier) else "flat"
