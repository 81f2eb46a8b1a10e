"""What is known of success rates, each a Beta distribution: chances of dead groups, likelihoods of counts.

For p ~ Beta(a, b) a group of G rollouts is dead with probability E pᴳ + E (1 − p)ᴳ, products of G fractions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

    def dead(self, groups: ArrayLike) -> Floats:
        """Chance that all of a group's two-valued rewards are equal, for groups of sizes (C,) or of one size."""
        sizes = np.broadcast_to(np.asarray(groups), self.a.shape)
        right, wrong = np.ones_like(self.a), np.ones_like(self.a)
        for j in range(int(sizes.max(initial=0))):
            among = j < sizes
            right = np.where(among, right * (self.a + j) / (self.a + self.b + j), right)
            wrong = np.where(among, wrong * (self.b + j) / (self.a + self.b + j), wrong)
        return right + wrong
