"""Rollouts drawn every N optimiser steps, the force frozen in between: the exact map of one cycle.

Derivation of this project; no publication.

Heavy ball v ← βv + F, x ← x + ηv with F = −κx held for N steps gives, with b = β^N and
S₁ = β(1 − b)/(1 − β),

    [x]     [ 1 − ηκ(N − S₁)/(1 − β)    ηS₁ ] [x]
    [v] ←   [ −κ(1 − b)/(1 − β)          b  ] [v]

It is stable iff its spectral radius is below 1. The Jury conditions of a 2 × 2 map make that
ηκ/(1 − β) < min(A₁, A₂), A₁ = 2/(N − 2S₁/(1 + b)) (a multiplier at −1), A₂ = (1 − b)/(S₁ − bN) (a complex
pair on the circle). Both fall with N, so the stable intervals are exactly 1 … N*, and bisection finds N*.
β = 0: N* is the last N below 2/(ηκ). For b → 0, N* ≈ 2(1 − β)/(ηκ) + 2β/(1 − β); the naive lag rule
2(1 − β)/(ηκ), c_eff = 0 at lag N/2, is up to two times too small. No interval is stable when ηκ ≥ 2(1 + β).

A frozen force needs the gradient without importance ratio. With the unclipped ratio the expected
gradient is the current one: there is no lag, and N does not matter. A clip is in between: simulate it
(`bandit`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics.oscillator import check_optimizer

Ratio = Literal["none", "unclipped", "clipped"]

LONGEST = 10**15
"""Longest interval in optimiser steps; whole numbers beyond it are not told apart."""


@dataclass(frozen=True)
class Margin:
    """Distance of an update rule from instability.

    radius: largest |multiplier| of one cycle of `interval` steps. threshold: the largest stable
    interval, ∞ without lag, 0 if none is, NaN with a clip. share: interval/threshold. onset: the
    smallest interval that oscillates. period: steps per oscillation, ∞ where there is none.
    naive: the lag rule 2(1 − β)/(ηκ), for comparison. flag: empty, or why there is no verdict.
    """

    interval: int
    radius: float
    threshold: float
    share: float
    onset: float
    period: float
    naive: float
    stable: bool | None
    flag: str = ""


def cycle_map(lr: ArrayLike, momentum: ArrayLike, curvature: ArrayLike, interval: ArrayLike) -> NDArray[np.float64]:
    """The map of (x, v) over one refresh cycle, (..., 2, 2); arguments broadcast."""
    lr, momentum, curvature, interval = _checked(lr, momentum, curvature, interval)
    power, share, first = _sums(momentum, interval)
    top = np.stack([1 - lr * curvature * (interval - first) / (1 - momentum), lr * first], -1)
    return np.stack([top, np.stack([-curvature * share, power], -1)], -2)


def _multipliers(
    lr: ArrayLike, momentum: ArrayLike, curvature: ArrayLike, interval: ArrayLike
) -> NDArray[np.complex128]:
    """The two eigenvalues of the cycle map, (..., 2), the larger modulus first."""
    trace, determinant = _invariants(*_checked(lr, momentum, curvature, interval))
    root = np.sqrt((trace / 2) ** 2 - determinant + 0j)
    far = trace / 2 + np.where(trace < 0, -root, root)  # adds, so nothing cancels
    near = determinant / np.where(far == 0, 1, far)
    return np.stack([far, near], -1)


def spectral_radius(
    lr: ArrayLike, momentum: ArrayLike, curvature: ArrayLike, interval: ArrayLike
) -> NDArray[np.float64]:
    """Largest |multiplier| of a cycle; below 1 is stable. Arguments broadcast."""
    return np.abs(_multipliers(lr, momentum, curvature, interval)).max(-1)


def oscillates(lr: ArrayLike, momentum: ArrayLike, curvature: ArrayLike, interval: ArrayLike) -> NDArray[np.bool_]:
    """Whether a cycle overshoots or turns: its multipliers are a complex pair or negative.

    The determinant is never negative, so both have the same sign or are a pair: iff trace < 2√det.
    """
    trace, determinant = _invariants(*_checked(lr, momentum, curvature, interval))
    return np.asarray(trace < 2 * np.sqrt(determinant))


def threshold(lr: float, momentum: float, curvature: float, ratio: Ratio = "none") -> float:
    """The largest stable refresh interval N* (a whole number), 0 if not even N = 1 is stable.

    ratio "none": frozen force. "unclipped": no lag, so ∞ or 0. "clipped": NaN, between the two.
    """
    check_optimizer(lr, momentum, curvature)
    if ratio == "clipped":
        return math.nan
    if ratio == "unclipped":
        return math.inf if _stable(lr, momentum, curvature, 1) else 0.0
    if naive_threshold(lr, momentum, curvature) > LONGEST:  # the pull of a step is lost in rounding
        return math.inf
    return largest(lambda n: _stable(lr, momentum, curvature, n))


def onset(lr: float, momentum: float, curvature: float) -> float:
    """The smallest interval whose cycle oscillates."""
    check_optimizer(lr, momentum, curvature)
    return largest(lambda n: not bool(oscillates(lr, momentum, curvature, n))) + 1


def naive_threshold(lr: float, momentum: float, curvature: float) -> float:
    """The first-order lag rule 2(1 − β)/(ηκ), up to two times too small; kept to be compared with."""
    check_optimizer(lr, momentum, curvature)
    return 2 * (1 - momentum) / (lr * curvature)


def margin(lr: float, momentum: float, curvature: float, interval: int, ratio: Ratio = "none") -> Margin:
    """Margin of `interval`: radius, largest stable interval, onset and period of oscillation."""
    check_optimizer(lr, momentum, curvature)
    if not (1 <= interval <= LONGEST and int(interval) == interval):
        raise UserError(f"interval {interval} must be a whole number of optimiser steps, from 1 to {LONGEST:,}")
    if ratio not in ("none", "unclipped", "clipped"):
        raise UserError(f"ratio {ratio!r} must be none, unclipped or clipped")
    cycle = 1 if ratio == "unclipped" else int(interval)
    largest = _multipliers(lr, momentum, curvature, cycle)[..., 0]
    angle, radius = abs(float(np.angle(largest))), float(np.abs(largest))
    last = threshold(lr, momentum, curvature, ratio)
    clipped = ratio == "clipped"
    return Margin(
        interval=int(interval),
        radius=math.nan if clipped else radius,
        threshold=last,
        share=interval / last if last else math.inf,
        onset=math.inf if ratio == "unclipped" else onset(lr, momentum, curvature),
        period=math.nan if clipped else 2 * math.pi * cycle / angle if angle else math.inf,
        naive=naive_threshold(lr, momentum, curvature),
        stable=None if clipped else radius < 1,
        flag="a clipped ratio is between frozen (none) and current (unclipped); simulate it" if clipped else "",
    )


def _checked(*arguments: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    lr, momentum, curvature, interval = (np.asarray(a, dtype=np.float64) for a in arguments)
    if np.any(~((momentum >= 0) & (momentum < 1))):
        raise UserError("momentum must be at least 0 and below 1")
    if np.any(~((interval >= 1) & (interval == np.floor(interval)))):
        raise UserError("interval must be a whole number of optimiser steps, at least 1")
    if np.any(~(lr > 0)) or np.any(~(curvature > 0)):
        raise UserError("learning rate and curvature must be above 0")
    return tuple(np.broadcast_arrays(lr, momentum, curvature, interval))


def _sums(
    momentum: NDArray[np.float64], interval: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """b = β^N, (1 − b)/(1 − β) and S₁ = β(1 − b)/(1 − β)."""
    power = momentum**interval
    share = (1 - power) / (1 - momentum)
    return power, share, momentum * share


def _invariants(
    lr: NDArray[np.float64],
    momentum: NDArray[np.float64],
    curvature: NDArray[np.float64],
    interval: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Trace and determinant of the cycle map; the determinant b + a(S₁ − bN), a = ηκ/(1 − β), is ≥ 0."""
    power, _, first = _sums(momentum, interval)
    pull = lr * curvature / (1 - momentum)
    trace = 1 + power - pull * (interval - first)
    return trace, power + pull * np.maximum(first - power * interval, 0.0)


def _stable(lr: float, momentum: float, curvature: float, interval: int) -> bool:
    return bool(spectral_radius(lr, momentum, curvature, interval) < 1)


def largest(holds: Callable[[int], bool]) -> float:
    """The largest whole N ≥ 1 with holds(N), 0 if there is none, ∞ beyond LONGEST; it holds on 1 … N, nowhere after."""
    if not holds(1):
        return 0.0
    low, high = 1, 2
    while holds(high):
        if high >= LONGEST:
            return math.inf
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return float(low)
