"""What is known of success rates, each a Beta distribution: moments, chances of dead groups, likelihoods of counts.

For p ~ Beta(a, b) and v = p(1 − p),  E vᵏ = B(a + k, b + k) / B(a, b)  for any real k > −min(a, b), and a group of G
rollouts is dead with probability E pᴳ + E (1 − p)ᴳ, products of G fractions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """Success rates of C problems, independent Beta distributions with parameters a and b, (C,) each and above 0."""

    a: Floats
    b: Floats

    @property
    def mean(self) -> Floats:
        """E p, (C,)."""
        return self.a / (self.a + self.b)

    def take(self, which: NDArray) -> Rates:
        """The rates of some of the problems."""
        return Rates(self.a[which], self.b[which])

    def spread_power(self, k: float) -> Floats:
        """E vᵏ with v = p(1 − p), (C,)."""
        if k in (1, 2):  # the usual ones, without logarithms
            a, b, total = self.a, self.b, self.a + self.b
            first = a * b / (total * (total + 1))
            return first if k == 1 else first * (a + 1) * (b + 1) / ((total + 2) * (total + 3))
        return np.asarray(np.exp(betaln(self.a + k, self.b + k) - betaln(self.a, self.b)))

    def dead(self, groups: ArrayLike) -> Floats:
        """Chance that all of a group's two-valued rewards are equal, for groups of sizes (C,) or of one size."""
        sizes = np.broadcast_to(np.asarray(groups), self.a.shape)
        right, wrong = np.ones_like(self.a), np.ones_like(self.a)
        for j in range(int(sizes.max(initial=0))):
            among = j < sizes
            right = np.where(among, right * (self.a + j) / (self.a + self.b + j), right)
            wrong = np.where(among, wrong * (self.b + j) / (self.a + self.b + j), wrong)
        return right + wrong


def log_chance(successes: Floats, rollouts: Floats, a: Floats, b: Floats) -> Floats:
    """log probability of so many successes in one given order, p ~ Beta(a, b); all arrays broadcast."""
    return np.asarray(betaln(a + successes, b + rollouts - successes) - betaln(a, b))


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
