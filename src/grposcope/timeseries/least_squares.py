"""Robust least squares of r₀ + c f(s; ψ) on many data sets at once: Levenberg-Marquardt with the linear part projected.

Given ψ the best (r₀, c) is a 2 × 2 system, so only ψ is searched for (variable projection, Golub & Pereyra
1973). Huber's loss (k robust standard deviations, scale fixed beforehand) by iteratively reweighted squares.
Every data set keeps its own damping and stops on its own; the work per round is a few array operations, whatever
the number B of data sets. Shapes: y (B, n), ψ (B, q), s (n,).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grposcope.timeseries.curve_models import Model
from grposcope.timeseries.noise import Array

ROUNDS = 60
CACHED = 32768
"""Residuals per piece: pieces that stay in the cache are several times faster."""


@dataclass(frozen=True)
class Solution:
    """Per data set: r₀ and c (B,), ψ (B, q), loss (B,), whether it converged (B,)."""

    start: Array
    rise: Array
    psi: Array
    loss: Array
    converged: np.ndarray


def solve(
    model: Model, s: Array, y: Array, psi: Array, scale: Array, huber: float, tolerance: float = 1e-6
) -> Solution:
    """Minimise Σ ρ(residual/scale) from ψ for each row of y; rows whose search stalls are returned as they are.

    A row is done when a step lowers its loss by less than `tolerance` scale²: at 1e-4, the numbers are within a
    hundredth of a standard error.
    """
    size = max(1, CACHED // len(s))
    parts = [
        _piece(model, s, y[i : i + size], psi[i : i + size], scale[i : i + size], huber, tolerance)
        for i in range(0, len(y), size)
    ]
    return Solution(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _piece(
    model: Model, s: Array, y: Array, psi: Array, scale: Array, huber: float, tolerance: float
) -> tuple[np.ndarray, ...]:
    low, high = np.log(model.low), np.log(model.high)
    psi = np.clip(psi, low, high)
    damping = np.full(len(y), 1e-2)
    here = _state(model, s, y, psi, scale, huber, None)
    active = np.ones(len(y), bool)
    for _ in range(ROUNDS):
        rows = np.flatnonzero(active)
        if not len(rows):
            break
        edges = psi[rows] <= low, psi[rows] >= high
        step = _step(here, rows, y[rows], damping[rows], edges)
        trial = np.clip(psi[rows] + step, low, high)
        there = _state(model, s, y[rows], trial, scale[rows], huber, here.weight[rows])
        better = there.loss < here.loss[rows]
        gone = here.loss[rows] - there.loss
        moved = np.abs(trial - psi[rows]).max(1)
        small = np.where(better, gone <= tolerance * scale[rows] ** 2, damping[rows] > 1e6) | (moved < 1e-6)
        accepted = rows[better]
        psi[accepted] = trial[better]
        here.put(accepted, there, better)
        damping[rows] = np.clip(np.where(better, damping[rows] / 5, damping[rows] * 4), 1e-9, 1e9)
        active[rows[small]] = False
    return here.linear[:, 0], here.linear[:, 1], psi, here.loss, ~active


@dataclass
class _State:
    f: Array
    slopes: Array
    linear: Array
    weight: Array
    loss: Array

    def put(self, rows: np.ndarray, other: _State, which: np.ndarray) -> None:
        for name in ("f", "slopes", "linear", "weight", "loss"):
            getattr(self, name)[rows] = getattr(other, name)[which]


def _state(model: Model, s: Array, y: Array, psi: Array, scale: Array, huber: float, weight: Array | None) -> _State:
    assert model.shape is not None
    f, slopes = model.shape(psi, s)
    if weight is None:  # a first look without weights, so that the weights start from a fit
        weight = huber_weight(y - _line(project(f, y, np.ones_like(y)), f), scale, huber)
    linear = project(f, y, weight)
    residual = y - _line(linear, f)
    weight = huber_weight(residual, scale, huber)
    return _State(f, slopes, linear, weight, huber_loss(residual, scale, huber))


def _step(here: _State, rows: np.ndarray, y: Array, damping: Array, edges: tuple[np.ndarray, np.ndarray]) -> Array:
    """Gauss-Newton step of ψ with (r₀, c) eliminated (Schur), damped; an edge holds what pushes at it."""
    f, weight, linear = here.f[rows], here.weight[rows], here.linear[rows]
    tangent = here.slopes[rows] * linear[:, 1, None, None]
    residual = y - _line(linear, f)
    total = weight.sum(1)
    centred = f - ((weight * f).sum(1) / total)[:, None]
    moved = tangent - ((weight[:, None] * tangent).sum(2) / total[:, None])[:, :, None]
    weighted = moved * weight[:, None]
    spread = np.maximum((weight * centred * centred).sum(1), 1e-300)
    along = (weighted @ centred[:, :, None])[:, :, 0]
    curvature = weighted @ moved.transpose(0, 2, 1) - along[:, :, None] * along[:, None, :] / spread[:, None, None]
    gradient = (weighted @ residual[:, :, None])[:, :, 0]
    diagonal = np.einsum("bqq->bq", curvature).copy()
    held = (edges[0] & (gradient < 0)) | (edges[1] & (gradient > 0))
    gradient = np.where(held, 0.0, gradient)
    curvature = np.where(held[:, :, None] | held[:, None, :], 0.0, curvature)
    np.einsum("bqq->bq", curvature)[:] = diagonal
    lift = damping[:, None] * np.maximum(diagonal, 1e-12 * np.maximum(diagonal.max(1, keepdims=True), 1e-300))
    curvature = curvature + np.einsum("bq,qr->bqr", lift + 1e-300, np.eye(curvature.shape[1]))
    step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
    return np.asarray(np.clip(step, -1.5, 1.5))


def project(f: Array, y: Array, weight: Array) -> Array:
    """Best (r₀, c) per row, (B, 2); c = 0 where f does not vary."""
    total = weight.sum(1)
    mean_f, mean_y = (weight * f).sum(1) / total, (weight * y).sum(1) / total
    centred = f - mean_f[:, None]
    spread = (weight * centred * centred).sum(1)
    rise = np.where(spread > 1e-14 * total, (weight * centred * y).sum(1) / np.maximum(spread, 1e-300), 0.0)
    return np.stack([mean_y - rise * mean_f, rise], 1)


def huber_weight(residual: Array, scale: Array, k: float) -> Array:
    """min(1, k scale/|residual|)."""
    limit = k * scale[:, None]
    return np.asarray(limit / np.maximum(np.abs(residual), limit))


def huber_loss(residual: Array, scale: Array, k: float) -> Array:
    """Σ ρ in units of squared residuals, (B,)."""
    size, limit = np.abs(residual), k * scale[:, None]
    return np.asarray(np.where(size <= limit, size**2, 2 * limit * size - limit**2).sum(1))


def _line(linear: Array, f: Array) -> Array:
    return linear[:, :1] + linear[:, 1:] * f
