"""How large gradients of problems are, from their success rates: what the optimal draw needs to know.

For rewards of 0 and 1, v = p(1 − p), the mean scores μ₊ of successes and μ₋ of failures, and tr F = E‖s‖², exactly

    ‖g_x‖² = v² ‖μ₊ − μ₋‖²        Δ(x) = v tr F + ‖g_x‖²        Σ₁(x) = v tr F − ‖g_x‖²  where ‖s‖² does not tell r

so that the second moment of one leave-one-out gradient is a(G) = ‖g‖² + Σ₁/G + Δ/(G(G−1)). tr F and ‖μ₊ − μ₋‖² may
depend on p, and are taken as fisher · v^fisher_power and separation · v^separation_power: powers of 0 mean that they do
not; a policy with two answers has −1 for the separation. Only their ratio matters to the draw. `alignment` is the share
of (E‖g_x‖)² that the mean gradient ‖E g_x‖² has: 1 where all problems pull the same way. Method of this project; no
publication.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln

from grposcope.lab.allocation.beta import Rates

Floats = NDArray[np.float64]

POWERS = (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25)
"""Powers of v that `fitted` chooses from."""


@dataclass(frozen=True)
class Norms:
    """Coefficients of the norms; see above. All above 0 but for the powers; alignment at most 1."""

    separation: float = 0.6
    separation_power: float = 0.0
    fisher: float = 1.0
    fisher_power: float = 0.0
    alignment: float = 0.03

    def squared(self, rates: Rates) -> Floats:
        """E‖g_x‖² over what is known of the rates, (C,)."""
        return self.separation * spread_power(rates, 2 + self.separation_power)

    def noise(self, rates: Rates) -> Floats:
        """E v tr F, (C,): (Δ + Σ₁)/2."""
        return self.fisher * spread_power(rates, 1 + self.fisher_power)

    def second_moments(self, rates: Rates, sizes: ArrayLike) -> Floats:
        """a(G) of each problem at each of the group sizes, all 2 or more, (C, sizes)."""
        g = np.asarray(sizes, np.float64)
        signal = 1 - 1 / g + 1 / (g * (g - 1))
        return self.squared(rates)[:, None] * signal + self.noise(rates)[:, None] / (g - 1)

    def mean_squared(self, rates: Rates, chances: ArrayLike | None = None) -> float:
        """‖E_x g_x‖², x drawn with these chances (C,), by default all alike."""
        norms = math.sqrt(self.separation) * spread_power(rates, 1 + self.separation_power / 2)
        mean = norms.mean() if chances is None else norms @ np.asarray(chances)
        return float(self.alignment * mean**2)


def spread_power(rates: Rates, k: float) -> Floats:
    """E vᵏ = B(a + k, b + k) / B(a, b) with v = p(1 − p), for any k > −min(a, b), (C,)."""
    if k in (1, 2):  # the usual ones, without logarithms
        a, b, total = rates.a, rates.b, rates.a + rates.b
        first = a * b / (total * (total + 1))
        return first if k == 1 else first * (a + 1) * (b + 1) / ((total + 2) * (total + 3))
    return np.asarray(np.exp(betaln(rates.a + k, rates.b + k) - betaln(rates.a, rates.b)))


def spread_over(successes: Floats, rollouts: Floats) -> tuple[float, float]:
    """Parameters of the Beta distribution of success rates over problems, from groups (P,) of two rollouts or more.

    Its first two moments are those that single rollouts and pairs of them give without bias; a + b is held within
    0.1 … 1000, where all problems are either always or never solved, or all alike.
    """
    first = float((successes / rollouts).mean())
    pairs = rollouts * (rollouts - 1)
    second = float((successes * (successes - 1) / pairs).mean())
    spread = second - first**2
    weight = float(np.clip((first - second) / spread, 0.1, 1e3)) if spread > 0 else 1e3
    mean = float(np.clip(first, 1e-3, 1 - 1e-3))
    return weight * mean, weight * (1 - mean)


DEFAULT = Norms()
"""Near what a probe of `tiny` on arithmetic finds. A draw by wrong norms is unbiased too, only less thrifty."""


def fitted(rates: Rates, squared: Floats, noise: Floats, mean_squared: float) -> Norms:
    """Norms that agree with a probe's problems: unbiased ‖g_x‖² and (Δ + Σ₁)/2 of each, (P,), and ‖E g‖².

    The powers are those of least squares, the coefficients those that keep the means. DEFAULT where the means are not
    above 0, so that the probe tells nothing.
    """
    if not (squared.mean() > 0 and noise.mean() > 0):
        return DEFAULT
    separation, separation_power = _power(rates, squared, 2.0)
    fisher, fisher_power = _power(rates, noise, 1.0)
    found = Norms(separation, separation_power, fisher, fisher_power, 1.0)
    most = found.mean_squared(rates)
    return Norms(separation, separation_power, fisher, fisher_power, float(np.clip(mean_squared / most, 0.01, 1.0)))


def _power(rates: Rates, measured: Floats, base: float) -> tuple[float, float]:
    """Coefficient c and power k for which c E v^(base + k) is nearest to what was measured, of the same mean."""
    best = (math.inf, 0.0, 0.0)
    for power in POWERS:
        shape = spread_power(rates, base + power)
        scale = float(measured.mean() / shape.mean())
        best = min(best, (float(((measured - scale * shape) ** 2).sum()), scale, power))
    return best[1], best[2]
