"""Every gradient K optimiser steps old, as in an asynchronous trainer: the exact threshold, and the published rule.

Derivation of this project; no publication. Heavy ball with pull k = ηκ whose force is that of K steps before,

    x_{n+1} − (1 + β) x_n + β x_{n−1} + k x_{n−K} = 0,     z^{K−1} (z − 1)(z − β) = −k

A multiplier lies on the circle only at e^{iω} with |e^{iω} − 1| |e^{iω} − β| = k. The product rises with ω, so there is
one such ω in (0, π) for k < 2(1 + β), and with u = 1 − cos ω

    4βu² + 2(1 − β)²u = k²,     u = k² / ((1 − β)² + √((1 − β)⁴ + 4βk²))

There the phase says at which real K that happens; multipliers cross outwards as K grows, so K is stable iff

    K < K_c = ½ + (π/2 − arg(e^{iω} − β)) / ω            β = 0: k < 2 sin(π/(2(2K + 1)))

A disturbance dies out without swings iff there is a real multiplier in (β, 1), k ≤ max z^{K−1}(1 − z)(z − β), whose
maximum lies at the larger root of (K + 1)z² − K(1 + β)z + (K − 1)β.

`rule` is that of arXiv:2606.30789 ([D]), κηK < 1 − μ with its μ = β, known second-hand. It is safe: below it no
constant lag and no refresh interval is unstable (`tests/instruments/dynamics/test_constant_lag.py`). The refresh
threshold N* (`refresh`) does not apply to a constant lag: it is 1.3 × too large there, or more.
"""

from __future__ import annotations

import cmath
import math

from grposcope.instruments.dynamics.oscillator import check_optimizer
from grposcope.instruments.dynamics.refresh import LONGEST


def rule(lr: float, momentum: float, curvature: float) -> float:
    """(1 − β)/(ηκ): [D] calls every interval or lag below it stable."""
    check_optimizer(lr, momentum, curvature)
    return (1 - momentum) / (lr * curvature)


def below(bound: float) -> float:
    """The largest whole number of steps below `bound`, 0 if there is none, ∞ beyond LONGEST."""
    return math.inf if bound > LONGEST else float(max(math.ceil(bound) - 1, 0))


def threshold(lr: float, momentum: float, curvature: float) -> float:
    """The largest stable constant lag K* (a whole number of steps); −1 where not even current gradients are stable."""
    check_optimizer(lr, momentum, curvature)
    pull = lr * curvature
    if pull >= 2 * (1 + momentum):
        return -1.0
    damping = (1 - momentum) ** 2
    u = pull**2 / (damping + math.sqrt(damping**2 + 4 * momentum * pull**2))
    angle = 2 * math.asin(math.sqrt(u / 2))
    # the real part 1 − β − u, where e^{iω} − β would cancel
    phase = cmath.phase(complex(1 - momentum - u, math.sin(angle)))
    critical = 0.5 + (math.pi / 2 - phase) / angle if angle > 0 else math.inf
    return math.inf if critical > LONGEST else float(max(math.ceil(critical - 1e-12) - 1, -1))
