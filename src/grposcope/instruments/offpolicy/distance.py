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

What a correction keeps of the weight, of how many rollouts, and of which lengths.

The mean of uncut coefficients over the sampler's rollouts is 1 (`corrections`), so that the mean of c_t, first over a
rollout's tokens, then over rollouts, is the share of weight that a correction keeps. The share of *rollouts* that it
keeps says little: those that are dropped have the largest weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate
from grposcope.instruments.offpolicy.khat import khat
from grposcope.maths import confidence, resampling
from grposcope.maths.corrections import Correction
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
        _ratio_of_kept(-ratios.sequence, lengths, prompts),
        _ratio_of_kept(ratios.sums(k3), lengths, prompts),
        _ratio_of_kept(ratios.sums(rho), lengths, prompts),
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
        _ratio_of_kept(-ratios.sums(old), lengths, prompts),
        _ratio_of_kept(ratios.sums(k3), lengths, prompts),
        _ratio_of_kept(ratios.sums(old - ratios.log), lengths, prompts),
    )


def _chi2(weights: Floats, prompts: NDArray[np.int64]) -> Estimate:
    """χ² = mean w² − 1 of weights (B,), its standard error by jackknife over prompts."""
    squares = _mean_of_kept(weights**2, prompts)
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


@dataclass(frozen=True)
class KeptWeight:
    """What a correction keeps.

    weight: mean coefficient. ess: (Σc)²/(nΣc²), over tokens for corrections of token level, else over rollouts; 0 where
    nothing is kept. tail: k̂ of the ratio before it is cut. thirds: mean coefficient in the shortest, the middle and the
    longest third of the rollouts; shares: their share of all that is kept; None where all lengths are equal.
    """

    weight: Estimate
    ess: float
    tail: float
    thirds: tuple[float, float, float] | None
    shares: tuple[float, float, float] | None


def of(correction: Correction, ratios: Ratios, prompts: NDArray[np.int64]) -> KeptWeight:
    """What a correction keeps of these rollouts; prompts (B,): the number of the prompt of each."""
    coefficients = correction.coefficients(ratios)
    means = ratios.means(coefficients)
    thirds, shares = _by_length(means, ratios.lengths)
    units = coefficients if correction.level == "token" else means
    return KeptWeight(_mean_of_kept(means, prompts), effective(units), khat(_uncut(correction, ratios)), thirds, shares)


@dataclass(frozen=True)
class _TokenClasses:
    """The tokens (N,) in classes. names: of the classes; number (N,): the class of each token."""

    names: tuple[str, ...]
    number: NDArray[np.int64]

    def means(self, values: Floats) -> tuple[float, ...]:
        """Mean of values (N,) in each class; NaN for an empty one."""
        counts, sums = (np.bincount(self.number, weights, len(self.names)) for weights in (None, values))
        return tuple(np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0).tolist())


PROBABILITIES = (0.1, 0.9)
"""Bounds between improbable, middling and probable tokens."""


SHOWN = 6
"""Environments, the most frequent ones, that are classes of their own; the others are one together."""


def classes(
    ratios: Ratios, lags: Floats | None = None, environments: Sequence[str] | None = None
) -> dict[str, _TokenClasses]:
    """Ways to class the tokens that are known, by title.

    lags (B,): versions by which the sampler was behind. environments (B,): of each rollout.
    """
    position = np.arange(len(ratios.log)) - ratios.spread(ratios.starts)
    thirds = 3 * position // ratios.spread(ratios.lengths)
    classes = {"position": _TokenClasses(("first third", "middle", "last third"), thirds)}
    if ratios.advantages is not None:
        sign = np.sign(ratios.advantages).astype(np.int64) + 1
        classes["advantage"] = _TokenClasses(("below 0", "0", "above 0"), ratios.spread(sign))
    if ratios.sampler is not None:
        names = tuple(f"{text} {bound:g}" for text, bound in zip(("up to", "above"), PROBABILITIES, strict=True))
        number = np.digitize(np.exp(ratios.sampler), PROBABILITIES, right=True)
        classes["probability"] = _TokenClasses((names[0], "between", names[1]), number)
    if lags is not None:
        distinct, number = np.unique(lags, return_inverse=True)
        if len(distinct) > 1:
            classes["lag"] = _TokenClasses(tuple(f"{value:g}" for value in distinct), ratios.spread(number.reshape(-1)))
    if environments is not None:
        frequent = [name for name, _ in Counter(environments).most_common()]
        first = frequent if len(frequent) <= SHOWN + 1 else frequent[:SHOWN]
        position = np.array(
            [first.index(environment) if environment in first else len(first) for environment in environments]
        )
        others = () if len(first) == len(frequent) else (f"{len(frequent) - len(first)} others",)
        classes["environment"] = _TokenClasses((*first, *others), ratios.spread(position))
    return classes


def _uncut(correction: Correction, ratios: Ratios) -> Floats:
    """Logarithms of the ratios that a correction cuts: of tokens (N,), or of rollouts (B,)."""
    return ratios.log if correction.level == "token" else ratios.sequence


def _by_length(
    means: Floats, lengths: NDArray[np.int64]
) -> tuple[tuple[float, float, float] | None, tuple[float, float, float] | None]:
    """Means of values (B,) in thirds by length, and the share of the sum that lies in each; None for equal lengths.

    Rollouts of one length stay together: where a third share the greatest, as at a limit of tokens, they are the long
    ones. NaN in the middle where no rollout is left for it.
    """
    low, high = np.quantile(lengths, [1 / 3, 2 / 3])
    long = lengths > high if (lengths > high).any() else lengths >= high
    short = (lengths <= low) & ~long
    inside, total = (short, ~short & ~long, long), means.sum()
    if not (short.any() and total > 0):
        return None, None
    thirds = [float(means[third].mean()) if third.any() else float("nan") for third in inside]
    shares = [float(means[third].sum() / total) for third in inside]
    return (thirds[0], thirds[1], thirds[2]), (shares[0], shares[1], shares[2])


def _mean_of_kept(values: Floats, prompts: NDArray[np.int64]) -> Estimate:
    """Mean of values (B,), its standard error by jackknife over prompts."""
    return _ratio_of_kept(values, np.ones(len(values)), prompts)


def _ratio_of_kept(numerators: Floats, denominators: Floats, prompts: NDArray[np.int64]) -> Estimate:
    """Σ numerators / Σ denominators (B,), its standard error by jackknife over prompts."""
    above, below = np.bincount(prompts, numerators), np.bincount(prompts, denominators)
    total = below.sum()
    if len(above) < 2:
        return Estimate(float(above.sum() / total), float("nan"), len(above), "one prompt: no standard error")
    return resampling.estimate(float(above.sum() / total), (above.sum() - above) / (total - below))
