"""How far the sampler μ is from the trainer's policy π, on rollouts that the sampler drew.

    KL(μ‖π) per token:  k1 = Σ −log ρ / ΣT      k3 = Σ (ρ − 1 − log ρ) / ΣT     both unbiased; k3 has less error
    χ² of rollouts:     mean w² − 1             ESS/n = (Σw)² / (nΣw²) of the raw weights w = Π_t ρ_t

Standard errors are by jackknife over prompts. They are too small for χ² and ESS where a few rollouts have most of the
weight: no interval is given below RELIABLE of ESS/n, and Pareto k̂ stands beside it. Processed log-probabilities, as a
truncated sampler returns them after top-k or top-p, have ρ ≤ 1 on every token, and the mean of ρ is then the
probability that truncation keeps; with numerical differences alone the mean is 1 and half of the tokens lie above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate
from grposcope.instruments.offpolicy import kept
from grposcope.instruments.offpolicy.khat import khat
from grposcope.maths import resampling
from grposcope.maths.importance import Floats, Ratios, effective, exp

RELIABLE = 0.7
"""ESS/n below which its standard error is not given."""

ABOVE, ROUNDING = 0.05, 1e-5
"""Share of tokens with ρ above 1 below which log-probabilities look processed; what of |log ρ| counts as rounding."""


@dataclass(frozen=True)
class Distance:
    """How far the sampler is from the trainer.

    k1, k3: KL(μ‖π) per token in nats. ratio: mean ρ of tokens. above: share of tokens with ρ > 1. chi2: of rollouts.
    ess: ESS/n of the raw weights of rollouts, ess_token: of tokens. tail: k̂ of the weights of rollouts.
    """

    k1: Estimate
    k3: Estimate
    ratio: Estimate
    above: float
    chi2: Estimate
    ess: Estimate
    ess_token: float
    tail: float

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
        kept.ratio(-ratios.sequence, lengths, prompts),
        kept.ratio(ratios.sums(k3), lengths, prompts),
        kept.ratio(ratios.sums(rho), lengths, prompts),
        float((ratios.log > ROUNDING).mean()),
        chi2(weights, prompts),
        ess(weights, prompts),
        effective(rho),
        khat(ratios.sequence) if np.abs(ratios.log).max(initial=0.0) > ROUNDING else float("nan"),
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
        kept.ratio(-ratios.sums(old), lengths, prompts),
        kept.ratio(ratios.sums(k3), lengths, prompts),
        kept.ratio(ratios.sums(old - ratios.log), lengths, prompts),
    )


def chi2(weights: Floats, prompts: NDArray[np.int64]) -> Estimate:
    """χ² = mean w² − 1 of weights (B,), its standard error by jackknife over prompts."""
    squares = kept.mean(weights**2, prompts)
    return replace(squares, value=squares.value - 1)


def ess(weights: Floats, prompts: NDArray[np.int64]) -> Estimate:
    """(Σw)²/(nΣw²) of weights (B,); its standard error by jackknife over prompts, NaN below RELIABLE."""
    value = effective(weights)
    if value < RELIABLE:
        return Estimate(value, float("nan"), len(weights), f"below {RELIABLE}, standard errors are not valid")
    sums, squares, counts = (np.bincount(prompts, part) for part in (weights, weights**2, np.ones(len(weights))))
    if len(sums) < 2:
        return Estimate(value, float("nan"), 1, "one prompt: no standard error")
    left_out = (sums.sum() - sums) ** 2 / ((counts.sum() - counts) * (squares.sum() - squares))
    return resampling.estimate(value, left_out)
