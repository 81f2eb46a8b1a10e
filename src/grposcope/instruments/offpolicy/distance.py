"""How far the sampler μ is from the trainer's policy π, on rollouts that the sampler drew.

    KL(μ‖π) per token:  k1 = Σ −log ρ / ΣT      k3 = Σ (ρ − 1 − log ρ) / ΣT     both unbiased; k3 has less error
    χ² of rollouts:     mean w² − 1             ESS/n = (Σw)² / (nΣw²) of the raw weights w = Π_t ρ_t

Standard errors are by jackknife over prompts. They are too small for χ² and ESS where a few rollouts have most of the
weight, and to give none where the estimate is low would select batches that missed the tail. So ESS/n has an interval
of its own whatever the estimate is: that of n Σw²/(Σw)² = 1 + χ², without its skewness and with a prompt that was not
drawn (`maths.confidence`). On lognormal weights with a third of the log variance between prompts, 16 × 8 and 64 × 8
rollouts, it holds in 89 to 99 % of batches for a true ESS/n of 0.6 to 0.95, in 88 and 95 % at 0.4 and in 70 and 93 % at
0.2; value ± 1.96 errors in 82 to 95, 72 and 80, 59 and 74 %. It has no lower end where one prompt has half of Σw².
Pareto k̂ stands beside it. Processed log-probabilities, as a truncated sampler returns them after top-k or top-p, have
ρ ≤ 1 on every token, and the mean of ρ is then the probability that truncation keeps; with numerical differences alone
the mean is 1 and half of the tokens lie above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate
from grposcope.instruments.offpolicy import kept_weight
from grposcope.instruments.offpolicy.khat import khat
from grposcope.maths import confidence, resampling
from grposcope.maths.importance import Floats, Ratios, effective, exp

FARTHEST = 200.0
"""Multiple of the estimated χ² from which the interval of ESS counts as open."""

ABOVE, ROUNDING = 0.05, 1e-5
"""Share of tokens with ρ above 1 below which log-probabilities look processed; what of |log ρ| counts as rounding."""


@dataclass(frozen=True)
class Distance:
    """How far the sampler is from the trainer.

    k1, k3: KL(μ‖π) per token in nats. ratio: mean ρ of tokens. above: share of tokens with ρ > 1. chi2: of rollouts.
    ess: ESS/n of the raw weights of rollouts, ess_token: of tokens. tail: k̂ of the weights of rollouts. ess_interval:
    95 % interval of ess, from 0 where it has no lower end.
    """

    k1: Estimate
    k3: Estimate
    ratio: Estimate
    above: float
    chi2: Estimate
    ess: Estimate
    ess_token: float
    tail: float
    ess_interval: tuple[float, float] = (float("nan"), float("nan"))

    @property
    def processed(self) -> bool:
        """Whether the sampler's log-probabilities look like those after top-k or top-p."""
        below = self.ratio.value + 3 * (self.ratio.se if np.isfinite(self.ratio.se) else 0.0) < 1
        return bool(below and self.above < ABOVE and abs(self.k1.value) > ROUNDING)

    @property
    def none(self) -> bool:
        """Whether the two are equal up to rounding."""
        return abs(self.k1.value) <= ROUNDING and abs(self.k3.value) <= ROUNDING


def measure(ratios: Ratios, prompts: NDArray[np.int64]) -> Distance:
    """The distance on these rollouts; prompts (B,): the number of the prompt of each."""
    rho, lengths = exp(ratios.log), ratios.lengths.astype(np.float64)
    k3 = rho - 1 - ratios.log
    weights = exp(ratios.sequence)
    return Distance(
        kept_weight.ratio(-ratios.sequence, lengths, prompts),
        kept_weight.ratio(ratios.sums(k3), lengths, prompts),
        kept_weight.ratio(ratios.sums(rho), lengths, prompts),
        float((ratios.log > ROUNDING).mean()),
        _chi2(weights, prompts),
        _ess(weights, prompts),
        effective(rho),
        khat(ratios.sequence) if np.abs(ratios.log).max(initial=0.0) > ROUNDING else float("nan"),
        _ess_interval(weights, prompts),
    )


@dataclass(frozen=True)
class DistanceParts:
    """KL(μ‖π) per token in nats as KL(μ‖π_old) + E_μ log(π_old/π), the identity that splits mismatch from staleness.

    Their sum is k1 to the last digit. mismatch: by k1, and by k3, which has less error; stale: may be negative, since
    π_old did not draw.
    """

    mismatch: Estimate
    mismatch_k3: Estimate
    stale: Estimate


def split(ratios: Ratios, mismatch: Sequence[Floats], prompts: NDArray[np.int64]) -> DistanceParts:
    """The two parts; mismatch: log π_old − log μ of each rollout."""
    lengths, old = ratios.lengths.astype(np.float64), np.concatenate(mismatch)
    k3 = exp(old) - 1 - old
    return DistanceParts(
        kept_weight.ratio(-ratios.sums(old), lengths, prompts),
        kept_weight.ratio(ratios.sums(k3), lengths, prompts),
        kept_weight.ratio(ratios.sums(old - ratios.log), lengths, prompts),
    )


def _chi2(weights: Floats, prompts: NDArray[np.int64]) -> Estimate:
    """χ² = mean w² − 1 of weights (B,), its standard error by jackknife over prompts."""
    squares = kept_weight.mean(weights**2, prompts)
    return replace(squares, value=squares.value - 1)


def _ess(weights: Floats, prompts: NDArray[np.int64]) -> Estimate:
    """(Σw)²/(nΣw²) of weights (B,); its standard error by jackknife over prompts. See `_ess_interval`."""
    value = effective(weights)
    sums, squares, counts = (np.bincount(prompts, values) for values in (weights, weights**2, np.ones(len(weights))))
    if len(sums) < 2:
        return Estimate(value, float("nan"), 1, "one prompt: no standard error")
    with np.errstate(divide="ignore", invalid="ignore"):  # all weight may lie on one prompt
        left_out = (sums.sum() - sums) ** 2 / ((counts.sum() - counts) * (squares.sum() - squares))
    return resampling.estimate(value, left_out)


def _ess_interval(weights: Floats, prompts: NDArray[np.int64], grid: int = 600) -> tuple[float, float]:
    """95 % interval of ESS/n; (0, upper) where 1/ESS has no upper end, NaN for fewer than three prompts."""
    sums, squares, counts = (np.bincount(prompts, values) for values in (weights, weights**2, np.ones(len(weights))))
    if len(sums) < 3:
        return float("nan"), float("nan")
    inverse = counts.sum() * squares.sum() / sums.sum() ** 2
    left_out = (counts.sum() - counts) * (squares.sum() - squares) / (sums.sum() - sums) ** 2
    contributions = confidence.pseudo_values(np.array([inverse]), left_out)
    if inverse <= 1 + 1e-12:
        return 1.0, 1.0
    values = 1 + (inverse - 1) * np.geomspace(0.02, FARTHEST, grid)
    below, above = confidence.sides(contributions - values[:, None])
    reach = confidence.quantile(len(sums))
    inside = np.flatnonzero((below >= -reach) & (above <= reach))
    low, high = (1 / values[inside[-1]], 1 / values[inside[0]]) if len(inside) else (1 / inverse, 1 / inverse)
    decided_by_one = float(squares.max()) > squares.sum() / 2  # what lies beyond it is not known
    open_below = decided_by_one or (len(inside) > 0 and inside[-1] == grid - 1)
    return 0.0 if open_below else min(float(low), 1 / inverse), max(float(high), 1 / inverse)
