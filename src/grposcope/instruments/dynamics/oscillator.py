"""The mean field of a run as a damped oscillator: m r̈ + c ṙ + k (r − r∞) = 0, one optimiser step = 1.

Source: arXiv:2606.30789 for the picture; the formulas below are a derivation of this project. Heavy ball with
step η, momentum β and curvature κ, x_{n+1} − x_n = β (x_n − x_{n−1}) − ηκ (x − x*), has to first order

    m = (1 + β)/2,   c = (1 − β) − ηκτ (lag of τ steps),   k = ηκ,   ζ = c / (2√(mk)).

Roots s = (−c ± √(c² − 4mk))/(2m). With the divided difference E(t) = (e^{s₁t} − e^{s₂t})/(s₁ − s₂) the
solution is y = e^{s₁t} y₀ + (v₀ − s₁y₀) E(t), which has no 0/0 where the roots meet: E is an exponential
times (1 − e^{−z})/z or sin(z)/z, whose value at 0 is 1. The continuum holds while ηκ is small next to
(1 − β)²; `refresh` has the exact discrete map. m = 0 is the overdamped limit, one exponential with
τ = c/k; it forgets the initial velocity. Reward is linear in the displacement near the fixed point, so
the same equation holds for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grposcope.core.errors import UserError


@dataclass(frozen=True)
class Oscillator:
    """A damped oscillator that moves from `start` to `plateau`; times are in optimiser steps.

    mass ≥ 0, damping (negative: it blows up), stiffness > 0, initial velocity per step.
    """

    mass: float
    damping: float
    stiffness: float
    start: float
    plateau: float
    velocity: float = 0.0

    def __post_init__(self) -> None:
        values = (self.mass, self.damping, self.stiffness, self.start, self.plateau, self.velocity)
        if not all(map(math.isfinite, values)):
            raise UserError(
                "mass, damping, stiffness, start, plateau and velocity of an oscillator must be finite numbers"
            )
        if self.mass < 0:
            raise UserError(f"mass {self.mass:g} must be at least 0; it is (1 + momentum)/2")
        if self.stiffness <= 0:
            raise UserError(f"stiffness {self.stiffness:g} must be above 0: learning rate and curvature must be")
        if self.mass == 0 and self.damping <= 0:
            raise UserError(f"damping {self.damping:g} must be above 0 when the mass is 0")

    @staticmethod
    def from_optimizer(
        lr: float,
        momentum: float,
        curvature: float,
        lag: float = 0.0,
        start: float = 0.0,
        plateau: float = 1.0,
        velocity: float = 0.0,
    ) -> Oscillator:
        """The oscillator of SGD with heavy-ball momentum, with rollouts `lag` steps old (first order).

        For Adam pass `lr=adam_step(…)` and `momentum=β₁`.
        """
        check_optimizer(lr, momentum, curvature)
        if not (math.isfinite(lag) and lag >= 0):
            raise UserError(f"lag {lag:g} must be at least 0 optimiser steps")
        stiffness = lr * curvature
        damping = (1 - momentum) - stiffness * lag
        return Oscillator((1 + momentum) / 2, damping, stiffness, start, plateau, velocity)

    @property
    def damping_ratio(self) -> float:
        """ζ = c / (2√(mk)): above 1 overdamped, below 1 oscillatory, below 0 unstable; ∞ without mass."""
        return self.damping / (2 * math.sqrt(self.mass * self.stiffness)) if self.mass else math.inf

    @property
    def regime(self) -> Literal["overdamped", "critical", "oscillatory", "unstable"]:
        """Regime of the solution by ζ; critical only where ζ is 1 to the last digits."""
        ratio = self.damping_ratio
        if ratio < 0:
            return "unstable"
        if abs(ratio - 1) < 1e-12:
            return "critical"
        return "overdamped" if ratio > 1 else "oscillatory"

    @property
    def time_constant(self) -> float:
        """τ = c/k, steps to cover 63 % of the way when overdamped."""
        return self.damping / self.stiffness

    @property
    def period(self) -> float:
        """Steps per oscillation, ∞ where there is none."""
        square = 4 * self.mass * self.stiffness - self.damping**2
        return 4 * math.pi * self.mass / math.sqrt(square) if square > 0 else math.inf

    def overdamped(self) -> Oscillator:
        """The limit m → 0: r(t) = r∞ − (r∞ − r₀) e^{−t/τ}."""
        return replace(self, mass=0.0)

    def trajectory(self, t: ArrayLike) -> NDArray[np.float64]:
        """r(t) at times t ≥ 0 (any shape), exact in all branches and continuous across them."""
        times = np.asarray(t, dtype=np.float64)
        y, _ = self._solution(times)
        return self.plateau + y

    def velocities(self, t: ArrayLike) -> NDArray[np.float64]:
        """ṙ(t), for phase portraits."""
        return self._solution(np.asarray(t, dtype=np.float64))[1]

    def _solution(self, t: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Displacement from the plateau and its derivative."""
        m, c, k = self.mass, self.damping, self.stiffness
        y0, v0 = self.start - self.plateau, self.velocity
        if m == 0:
            y = y0 * np.exp(-t * (k / c))
            return y, -(k / c) * y
        square = c * c - 4 * m * k
        if square >= 0:
            far = -(c + math.copysign(math.sqrt(square), c)) / (2 * m)  # the root without cancellation
            near = k / (m * far) if far else 0.0
            high, low = max(far, near), min(far, near)
            divided = t * np.exp(high * t) * _decay((high - low) * t)
            slope = v0 - high * y0
            y = y0 * np.exp(high * t) + slope * divided
            return y, high * y + slope * (np.exp(high * t) - (high - low) * divided)
        rate, omega = -c / (2 * m), math.sqrt(-square) / (2 * m)
        envelope = np.exp(rate * t)
        wave, ramp = np.cos(omega * t), t * np.sinc(omega * t / math.pi)
        slope = v0 - rate * y0
        y = envelope * (y0 * wave + slope * ramp)
        return y, rate * y + envelope * (slope * wave - omega * omega * y0 * ramp)


def check_optimizer(lr: float, momentum: float, curvature: float) -> None:
    """Raise a UserError unless η > 0, 0 ≤ β < 1 and κ > 0, all finite."""
    if not (math.isfinite(lr) and lr > 0):
        raise UserError(f"learning rate {lr:g} must be above 0 and finite")
    if not 0 <= momentum < 1:
        raise UserError(f"momentum {momentum:g} must be at least 0 and below 1")
    if not (math.isfinite(curvature) and curvature > 0):
        raise UserError(
            f"curvature {curvature:g} must be above 0: without a restoring force there is no oscillator; "
            "measure it (see docs/dynamics.md) or add a KL term"
        )


def _decay(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """(1 − e^{−z})/z for z ≥ 0, with its limit 1 at 0."""
    safe = np.where(z > 0, z, 1.0)
    return np.where(z > 0, -np.expm1(-safe) / safe, 1.0)
