"""Whether a mean has fallen below a limit, by bets that may be looked at after every batch.

Values lie in [0, 1], and under the null hypothesis the mean of each, given all that came before, is at least m. Then
1 + λ(m − x) with 0 ≤ λ ≤ 1/(1 − m) is never negative and has a mean of at most 1, so that the product over all values
is a supermartingale, and so is an average over several λ: by Ville's inequality it ever reaches 1/α with a chance of at
most α. Values of one batch may come in any order, as long as they are independent given the past (Waudby-Smith &
Ramdas 2024 bet in this way on both sides).

A bet from the beginning on loses while the mean is above m, so that a late fall would first have to win that back. So
the capital is shared out over the batches with which betting may begin, 1/(s(s + 1)) for the batch s: `Bets`.

Where only the mean of n values is known, the logarithm of the product is at least what values of 0 and 1 with this mean
would give, since log(1 + λ(m − x)) is concave in x: less evidence, never too much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FRACTIONS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])
"""The bets λ that are averaged over, as shares of the largest possible."""


def _log_factors(values: Floats, limit: float) -> Floats:
    """Σ log(1 + λ(limit − x)) over values (n,) in [0, 1] for each λ, (F,); limit in [0, 1)."""
    bets = FRACTIONS / (1 - limit)
    growth: Floats = np.log1p(bets[:, None] * (limit - values)).sum(1)
    return growth


def log_average(logs: Floats, weights: Floats | None = None) -> float:
    """log Σ weights · exp(logs) of logs (F,), weights equal by default."""
    with np.errstate(divide="ignore"):
        parts = logs + np.log(1 / len(logs) if weights is None else weights)
    height = float(parts.max())
    return height if height == -np.inf else height + float(np.log(np.exp(parts - height).sum()))


def share(number: int) -> float:
    """Weight of the hypothesis with this number, from 1 on: 1/(k(k + 1)), whose sum over all is 1."""
    return 1 / (number * (number + 1))


@dataclass
class Bets:
    """Capital against a mean of at least some limit, shared out over the batches with which betting may begin.

    batches: taken so far. logs: logarithm of the capital of what has begun, for each λ, (F,).
    """

    batches: int = 0
    logs: list[float] = field(default_factory=lambda: [-math.inf] * len(FRACTIONS))

    def take(self, values: Floats, limit: float) -> None:
        """Bet on the values (n,) in [0, 1] of a further batch."""
        self.batches += 1
        begun = np.logaddexp(np.array(self.logs), math.log(share(self.batches)))
        self.logs = (begun + _log_factors(values, limit)).tolist()

    @property
    def log_e(self) -> float:
        """Logarithm of the capital, of which there was 1."""
        return float(np.logaddexp(log_average(np.array(self.logs)), -math.log(self.batches + 1)))
