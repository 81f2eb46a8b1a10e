"""Ratios ρ_t = π(y_t)/μ(y_t) of the trainer's policy π to the sampler's μ, on tokens that the sampler drew.

They are kept as logarithms, those of all rollouts end to end: w = Π_t ρ_t of a long completion leaves the range of a
float where Σ_t log ρ_t does not. An exponential is cut at e^LARGEST.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError

Floats = NDArray[np.float64]

LARGEST = 300.0
"""Logarithm beyond which a weight is cut: its square and sums of those stay finite."""


@dataclass(frozen=True)
class Ratios:
    """Log ratios of B rollouts, end to end.

    log (N,): log ρ of every token. lengths (B,): tokens of each rollout, at
    least 1. advantages (B,): of each rollout; sampler (N,): log μ of every token; None where they are not known.
    """

    log: Floats
    lengths: NDArray[np.int64]
    advantages: Floats | None = None
    sampler: Floats | None = None

    @staticmethod
    def of(
        log_ratios: Sequence[Floats], advantages: Floats | None = None, sampler: Sequence[Floats] | None = None
    ) -> Ratios:
        """The log ratios of each rollout, an array each; UserError for none, no tokens, and what is not finite."""
        lengths = np.array([len(log_ratio) for log_ratio in log_ratios], np.int64)
        if not len(lengths) or not lengths.all():
            raise UserError("a rollout has no tokens, or there are no rollouts; leave empty completions out")
        log = np.concatenate(log_ratios).astype(np.float64)
        if not np.isfinite(log).all():
            raise UserError("a log ratio is not finite; give both log-probabilities of every token as finite numbers")
        return Ratios(log, lengths, advantages, None if sampler is None else np.concatenate(sampler))

    def rows(self, which: NDArray[np.int64]) -> Ratios:
        """Those of some rollouts, (B,)."""
        log, sampler = (
            None if values is None else [np.split(values, self.starts[1:])[i] for i in which]
            for values in (self.log, self.sampler)
        )
        assert log is not None
        return Ratios.of(log, None if self.advantages is None else self.advantages[which], sampler)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each rollout begins, (B,)."""
        return np.asarray(np.cumsum(self.lengths) - self.lengths)

    @cached_property
    def sequence(self) -> Floats:
        """log w = Σ_t log ρ_t of each rollout, (B,)."""
        return self.sums(self.log)

    @cached_property
    def prefix(self) -> Floats:
        """Σ_{u≤t} log ρ_u up to and with each token, (N,)."""
        running = np.cumsum(self.log)
        return np.asarray(running - self.spread(running[self.starts] - self.log[self.starts]))

    def spread(self, values: NDArray) -> NDArray:
        """A value per rollout (B,) as a value per token (N,)."""
        return np.repeat(values, self.lengths)

    def sums(self, values: Floats) -> Floats:
        """Sums over the tokens (N,) of each rollout, (B,)."""
        return np.asarray(np.add.reduceat(values, self.starts))

    def means(self, values: Floats) -> Floats:
        """Means over the tokens (N,) of each rollout, (B,)."""
        return self.sums(values) / self.lengths


def exp(log: Floats) -> Floats:
    """e^log, cut at e^LARGEST."""
    return np.exp(np.minimum(log, LARGEST))


def effective(weights: Floats) -> float:
    """Effective sample size as a share, (Σw)²/(nΣw²); 0 where all weights are 0."""
    largest = weights.max()
    if not largest > 0:
        return 0.0
    scaled = weights / largest
    return float(scaled.sum() ** 2 / (len(weights) * (scaled @ scaled)))
