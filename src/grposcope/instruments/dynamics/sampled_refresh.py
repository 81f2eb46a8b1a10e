"""Refresh intervals with sampled rollouts: κ differs from batch to batch, and so a disturbance grows before N*.

Derivation of this project; no publication.

At the plateau advantages vanish, so what sampling leaves of its noise multiplies the displacement: in cycle c the map
of `refresh` has κ_c = κ (1 + ν ζ_c), ζ of mean 0 and variance 1. The mean displacement follows M(κ), its second moment

    E[M ⊗ M] = M(κ) ⊗ M(κ) + (νκ)² B ⊗ B,     B = ∂M/∂κ,

and stays bounded iff the spectral radius of this 4 × 4 map is below 1. β = 0: ηκN < 2/(1 + ν²), so the threshold is
N* divided by 1 + ν². Beyond it most runs may still shrink while a few leave the linear range, from where sampled runs,
whose groups become dead, do not come back. One direction is looked at; others add noise (`experiments/dynamics.md`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import refresh


def _second_moment_map(
    lr: float, momentum: float, curvature: float, interval: int, variation: float
) -> NDArray[np.float64]:
    """E[M ⊗ M] (4, 4) of one cycle. variation: ν, the standard deviation of κ between batches ÷ κ."""
    if not (variation >= 0 and math.isfinite(variation)):
        raise UserError(f"a variation of κ of {variation:g} must be finite and at least 0")
    mean = refresh.cycle_map(lr, momentum, curvature, interval)
    slope = (mean - refresh.cycle_map(lr, momentum, curvature / 2, interval)) * 2 * variation  # M is linear in κ
    return np.asarray(np.kron(mean, mean) + np.kron(slope, slope))


def _growth(lr: float, momentum: float, curvature: float, interval: int, variation: float) -> float:
    """Factor by which the root mean square of a disturbance grows in a cycle; below 1 it dies out."""
    moments = _second_moment_map(lr, momentum, curvature, interval, variation)
    return float(np.sqrt(np.abs(np.linalg.eigvals(moments)).max()))


def threshold(lr: float, momentum: float, curvature: float, variation: float) -> float:
    """The largest interval up to which the second moment stays bounded, 0 if there is none; N* for variation 0."""
    _second_moment_map(lr, momentum, curvature, 1, variation)  # refuses what cannot be
    below, above = (
        0,
        int(min(refresh.threshold(lr, momentum, curvature), refresh.LONGEST)) + 1,
    )  # the mean grows from N* + 1 on
    while above - below > 1:
        middle = (below + above) // 2
        stable = _growth(lr, momentum, curvature, middle, variation) < 1
        below, above = (middle, above) if stable else (below, middle)
    return float(below)
