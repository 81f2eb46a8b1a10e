"""The curves that a reward is fitted with: r(s) = r₀ + (r∞ − r₀) f(s; ψ), f(0) = 0, f → 1, with Jacobians.

s is the share of the observed run, (step − first)/(last − first), and ψ are logarithms of positive numbers:

    constant     none            f = 0
    exponential  τ               f = 1 − e^{−s/τ}                                    the overdamped limit
    inertial     τ, ζ            1 − step response of m r̈ + c ṙ + k r at rest, τ = c/k, ζ = c/(2√(mk))

ζ → ∞ turns inertial into exponential. `experiments/curve_families.py` has rivals. Each shape returns f (B, n) and
∂f/∂ψ (B, q, n) for ψ (B, q), analytic and finite at critical damping.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grposcope.maths.timeseries.noise import Array

Shape = Callable[[Array, Array], tuple[Array, Array]]


@dataclass(frozen=True)
class Model:
    """A family of curves.

    names: of the numbers in ψ; timed: those that are measured in steps; low, high: their range in shares of the run;
    starts: values of each number from which the search starts.
    """

    name: str
    shape: Shape
    names: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    starts: tuple[tuple[float, ...], ...] = ()


def _constant(psi: Array, s: Array) -> tuple[Array, Array]:
    """f = 0."""
    return np.zeros((len(psi), len(s))), np.zeros((len(psi), 0, len(s)))


def _exponential(psi: Array, s: Array) -> tuple[Array, Array]:
    """f = 1 − e^{−s/τ}."""
    ratio = s * np.exp(-psi[:, :1])
    remaining = np.exp(-ratio)
    return 1 - remaining, (-ratio * remaining)[:, None]


def _inertial(psi: Array, s: Array) -> tuple[Array, Array]:
    """1 − e^{−αs}(C + αs S) with α = 2ζ²/τ, Δ = 4ζ²(ζ² − 1)/τ², C = cosh √(Δs²), S = sinh √(Δs²)/√(Δs²)."""
    tau, zeta = np.exp(psi[:, :1]), np.exp(psi[:, 1:])
    alpha, omega2 = 2 * zeta**2 / tau, 4 * zeta**2 / tau**2
    delta = omega2 * (zeta**2 - 1)
    z, decay = delta * s**2, alpha * s
    c, big_s, slope = _damped(z, decay, omega2 * s**2)
    distance = c + decay * big_s
    by_alpha = s * (big_s - distance)
    by_delta = s**2 * (big_s / 2 + decay * slope)
    by_tau = -alpha * by_alpha - 2 * delta * by_delta
    by_zeta = 2 * alpha * by_alpha + (4 * zeta**2 - 2) * omega2 * by_delta
    return 1 - distance, -np.stack([by_tau, by_zeta], 1)


def _damped(z: Array, decay: Array, square: Array) -> tuple[Array, Array, Array]:
    """e^{−αs} times C, S and dS/dz at z = Δs²; `square` = ω²s² keeps αs − √z free of cancellation."""
    over = z[:, -1] >= 0  # the sign of Δ, a property of the row
    x = np.sqrt(np.abs(z))
    safe = np.where(x > 0, x, 1.0)
    c, big_s, fast = np.empty_like(z), np.empty_like(z), np.empty_like(z)
    if over.any():
        far = decay[over] + x[over]
        near = np.exp(-square[over] / np.where(far > 0, far, 1.0))
        fade = np.expm1(-2 * x[over])
        c[over], big_s[over] = near * (1 + fade / 2), near * np.where(x[over] > 0, -fade / (2 * safe[over]), 1.0)
        fast[over] = np.exp(-decay[over])
    if not over.all():
        under = ~over
        fast[under] = np.exp(-decay[under])
        c[under] = fast[under] * np.cos(x[under])
        big_s[under] = fast[under] * np.where(x[under] > 0, np.sin(x[under]) / safe[under], 1.0)
    small = np.abs(z) < 1e-2
    return c, big_s, np.where(small, _slope_series(fast, z), (c - big_s) / (2 * np.where(small, 1.0, z)))


def _slope_series(fast: Array, z: Array) -> Array:
    """dS/dz = 1/6 + z/60 + z²/1680 + z³/90720 + …, where the quotient cancels."""
    return fast * (1 / 6 + z * (1 / 60 + z * (1 / 1680 + z / 90720)))


MODELS: dict[str, Model] = {
    "constant": Model("constant", _constant),
    "exponential": Model("exponential", _exponential, ("time_constant",), ("time_constant",), (0.005,), (10.0,),
                         ((0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 4.0),)),
    "inertial": Model("inertial", _inertial, ("time_constant", "damping_ratio"), ("time_constant",), (0.005, 0.1),
                      (10.0, 10.0), ((0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 4.0), (0.15, 0.3, 0.6, 1.0, 2.0, 5.0))),
}  # fmt: skip
"""All models by name."""
