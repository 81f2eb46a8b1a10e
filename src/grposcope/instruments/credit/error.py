"""Mean-squared error, bias and price of gradients that differ in their credit, measured on the same rollouts.

A source of credit gives every prompt p one gradient of its group, ĝ_p = (1/G) Σ_i Σ_t A_{i,t} ∇log π(y_{i,t}). Prompts
are independent draws, so with E over prompts and rollouts, m = E ĝ_p and g the policy gradient,

    variance        tr Cov ĝ_p = E‖ĝ_p‖² − ‖m‖²,  the last from pairs of different prompts: the spread of g(x) is in it
    scale           c = E⟨m(x), g(x)⟩ / E‖g(x)‖²,  what the learning rate can take back
    bias            ‖m/c − g‖², from pairs of different prompts, so that noise does not count as bias
    error           MSE(P) = tr Cov ĝ_p /(c² P) + ‖m/c − g‖²,  of ĝ/c from P prompts
    saving          MSE × tokens of outcome credit over MSE × tokens of the source

Everything is a quadratic form in the inner products of a few vectors per prompt, its base vectors. With two halves of
the continuations behind two of them, u and u′, of n each, the noise of the halves is independent, so

    exact credit        E‖ĝ_p‖² = E⟨u, u′⟩
    K continuations     E‖ĝ_p‖² = E⟨u, u′⟩ + (n/K) (E‖u‖²/2 + E‖u′‖²/2 − E⟨u, u′⟩)                for every K

without the noise of the values in the first, and without drawing anew in the second: ĝ is linear in the values. g is
measured by an independent sample of rollouts of the same prompts, with outcome credit; both means of the scale are
products with it, so that their noise is shared and cancels. The noise that a source shares with outcome credit on the
same rollouts is taken out of its bias as a control variate.

Intervals of the error and the saving are those of Student's t on the logarithm of the ratio, jointly for all sources,
with the standard error of the jackknife over prompts and n − 1 degrees of freedom, where n = (Σ q_p)²/Σ q_p² is the
number of equal prompts that would make the squares q_p = ‖ĝ_p‖² of outcome credit or of the source, whichever is
smaller: a few prompts with large scores make most of them. The bootstrap with P − 1, used before, is too narrow where
they do. Other intervals are percentiles of a bootstrap of prompts. Method of this project; no publication.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.maths import resampling

BASE, EXACT = "outcome", "exact"
"""Names of the source that all are compared with, and of the credit that nobody can buy."""

Z = 1.959963984540054
"""Quantile of the normal distribution for a 95 % interval."""

DAMAGED = 0.02
"""Share of the resamples without a positive error from which on nothing is said."""

AT_ONCE = 100
"""Resamples whose pair products are held at a time."""


@dataclass(frozen=True)
class Ranged:
    """A number with its 95 % interval over prompts; NaN where nothing can be said. flag: why not."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    flag: str = ""

    def excludes(self, value: float) -> bool:
        """Whether the interval is known and does not hold `value`."""
        return self.low > value or self.high < value


@dataclass(frozen=True)
class GradientSource:
    """A source of credit as a quadratic form in the base vectors.

    mean (V,): ĝ_p = Σ_a mean_a v_{a,p}. second (V, V): E‖ĝ_p‖² = E Σ_ab second_ab ⟨v_a, v_b⟩. tokens (P,): generated
    for each prompt, those of the rollouts included. unbiased: that E ĝ_p = g(x) holds by construction.
    """

    name: str
    mean: NDArray
    second: NDArray
    tokens: NDArray
    unbiased: bool


@dataclass(frozen=True)
class SourceError:
    """What one source of credit does to the gradient, and what it charges.

    tokens: generated, ÷ those of outcome credit. mse: error ÷ that of outcome credit. saving: error × tokens of outcome
    credit ÷ the same of this source, above 1 where it pays. scale: c. bias: ‖m/c − g‖ ÷ ‖g‖, its low end 0 where noise
    alone would do. log_error: standard error of log saving. effective: number of equal prompts that would make as much
    of the error.
    """

    name: str
    tokens: Ranged
    mse: Ranged
    saving: Ranged
    scale: Ranged
    bias: Ranged
    unbiased: bool
    log_error: float
    effective: float


@dataclass(frozen=True)
class _CreditComparison:
    """All sources on the same prompts. floor: share of the error of outcome credit that prompts make by themselves,
    tr Var g(x) ÷ tr Cov ĝ_p, which no credit can remove. effective: number of equal prompts that would make as much of
    the error of outcome credit.
    """

    sources: tuple[SourceError, ...]
    floor: Ranged
    effective: float


@dataclass(frozen=True)
class _Products:
    """Inner products of base vectors: within prompts averaged, and over pairs of different prompts, (k, V, V) each.

    weights (k, P): the resamples, the first of which is the sample itself.
    """

    within: NDArray
    across: NDArray
    weights: NDArray

    @classmethod
    def of(cls, gram: NDArray, weights: NDArray) -> _Products:
        """Products from all inner products (V, P, V, P) of the base vectors, for weights (k, P) of the prompts."""
        vectors, prompts = gram.shape[:2]
        same = np.einsum("apbp->pab", gram).reshape(prompts, -1)
        within = (weights @ same / weights.sum(-1, keepdims=True)).reshape(-1, vectors, vectors)
        by_pair = gram.transpose(1, 0, 2, 3).copy()  # (P, V, V, P)
        by_pair[np.arange(prompts), :, :, np.arange(prompts)] = 0.0
        pairs = weights.sum(-1) ** 2 - (weights**2).sum(-1)
        across = np.empty_like(within)
        for start in range(0, len(weights), AT_ONCE):
            piece = weights[start : start + AT_ONCE]
            inner = (piece @ by_pair.reshape(prompts, -1)).reshape(len(piece), vectors, vectors, prompts)
            across[start : start + AT_ONCE] = np.einsum("kabq,kq->kab", inner, piece)
        with np.errstate(divide="ignore", invalid="ignore"):
            return cls(within, across / pairs[:, None, None], weights)

    def square(self, vector: NDArray) -> NDArray:
        """‖E v‖² (k,) of a combination (V,) of the base vectors, from pairs of prompts."""
        return np.asarray(np.einsum("a,kab,b->k", vector, self.across, vector))

    def product(self, matrix: NDArray, other: NDArray) -> NDArray:
        """⟨E v, E u⟩ (k,) of two combinations, from pairs of prompts."""
        return np.asarray(np.einsum("a,kab,b->k", matrix, self.across, other))

    def beside(self, matrix: NDArray, other: NDArray) -> NDArray:
        """E⟨v, u⟩ (k,) of two combinations of the same prompt."""
        return np.asarray(np.einsum("a,kab,b->k", matrix, self.within, other))

    def variance(self, source: GradientSource) -> NDArray:
        """tr Cov ĝ_p (k,): of prompts and rollouts together."""
        return np.einsum("ab,kab->k", source.second, self.within) - self.square(source.mean)

    def covariance(self, matrix: NDArray, other: NDArray) -> NDArray:
        """tr Cov(v, u) (k,) of two combinations of the base vectors."""
        return self.beside(matrix, other) - self.product(matrix, other)


def crossed(name: str, halves: tuple[int, int], vectors: int, tokens: NDArray) -> GradientSource:
    """Exact credit, from two base vectors with independent values: their noise is not in its error."""
    mean, both, _ = _halves(halves, vectors)
    return GradientSource(name, mean, both, tokens, True)


def continued(
    name: str, halves: tuple[int, int], vectors: int, each: int, count: int, tokens: NDArray
) -> GradientSource:
    """Credit from `count` continuations per boundary, from two base vectors with the values of `each` of them."""
    if min(each, count) < 1:
        raise UserError(f"{min(each, count)} continuations per boundary are too few; use 1 or more")
    mean, both, own = _halves(halves, vectors)
    return GradientSource(name, mean, both + each / count * (own - both), tokens, True)


def measure(
    gram: NDArray, sources: Sequence[GradientSource], reference: int, replicates: int = 2000, seed: int = 0
) -> _CreditComparison:
    """Errors of all sources beside the first, which is outcome credit and unbiased.

    gram: inner products (V, P, V, P) of the base vectors. reference: the base vector of an independent sample of
    rollouts of the same prompts, unbiased. UserError for fewer than three prompts.
    """
    prompts = gram.shape[1]
    if prompts < 3:
        raise UserError(f"{prompts} prompts are too few to compare sources of credit; use 3 or more, 40 are usual")
    weights = np.concatenate([
        resampling.point(prompts), resampling.bootstrap(prompts, replicates, seed), resampling.jackknife(prompts)
    ])  # fmt: skip
    products = _Products.of(gram, weights)
    target = np.eye(gram.shape[0])[reference]
    own = [_effective(gram, source) for source in sources]
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = [_of_source(source, sources[0], target, products, prompts) for source in sources]
        compared = tuple(
            _beside(source, error, errors[0], prompts, min(own[0], equal))
            for source, error, equal in zip(sources, errors, own, strict=True)
        )
        between = products.beside(sources[0].mean, target) - products.square(target)
        floor = between / products.variance(sources[0])
        return _CreditComparison(compared, _percentile(floor[: 1 + replicates]), own[0])


def _effective(gram: NDArray, source: GradientSource) -> float:
    """(Σ q_p)²/Σ q_p² of the squared gradients q_p of prompts: the number of equal prompts that would make them."""
    squares = np.einsum("ab,apbp->p", source.second, gram).clip(min=0.0)
    return float(squares.sum() ** 2 / (squares**2).sum()) if squares.any() else 0.0


def ratio(numerators: NDArray, denominators: NDArray, replicates: int = 2000, seed: int = 0) -> Ranged:
    """Ratio of sums over prompts, from numerators and denominators (P,), with its interval; NaN for 0/0."""
    prompts = len(numerators)
    weights = np.concatenate([resampling.point(prompts), resampling.bootstrap(prompts, replicates, seed)])
    with np.errstate(divide="ignore", invalid="ignore"):
        return _percentile((weights @ numerators) / (weights @ denominators))


def pays(sources: Sequence[SourceError], level: float = 0.05) -> tuple[SourceError, ...]:
    """Sources whose saving is above 1, with a chance of at most `level` that any is named wrongly (Bonferroni)."""
    comparable = [source for source in sources if math.isfinite(source.saving.value) and source.log_error > 0]
    if not comparable:
        return ()
    reach = {source.name: _quantile(1 - level / len(comparable), source.effective) for source in comparable}
    return tuple(
        source
        for source in comparable
        if math.log(max(source.saving.value, 1e-300)) > reach[source.name] * source.log_error
    )


# One source


def _of_source(
    source: GradientSource, base: GradientSource, target: NDArray, products: _Products, prompts: int
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Over all resamples, (k,) each: the error, the scale, ‖bias‖², and the tokens of a prompt."""
    scale = products.beside(source.mean, target) / products.beside(base.mean, target)
    divisor = np.ones_like(scale) if source.unbiased else scale
    control = base.mean - target  # mere noise, part of which the source shares
    errors = source.mean[None] / divisor[:, None] - target
    noise = products.covariance(control, control)[0]
    share = 0.0 if source is base or not noise > 0 else products.covariance(errors[0], control)[0] / noise
    errors = errors - share * control
    bias = np.einsum("ka,kab,kb->k", errors, products.across, errors)
    error = products.variance(source) / (divisor**2 * prompts)
    if not source.unbiased:
        error = error + np.maximum(bias, 0.0)
    return error, scale, bias, products.weights @ source.tokens / products.weights.sum(-1)


def _beside(
    source: GradientSource, own: Sequence[NDArray], base: Sequence[NDArray], prompts: int, equal: float
) -> SourceError:
    """The errors of one source beside those of outcome credit. own, base: as `_of_source` returns them. equal: prompts
    that would make as much of the error."""
    error, scales, bias, used = own
    drawn = len(scales) - prompts  # the sample itself and its bootstrap; those without one prompt follow
    tokens, mse = used / base[3], error / base[0]
    saving = 1 / (tokens * mse)
    scale = _percentile(scales[:drawn])
    flag = ""
    if not source.unbiased and not scale.low > 0:
        flag = "its gradient does not differ from 0 beyond noise, so its scale is unknown"
    elif not float((~(mse[:drawn] > 0) | ~np.isfinite(mse[:drawn])).mean()) < DAMAGED:
        flag = "too few prompts with unequal rewards"
    lost, unknown = bool(flag), Ranged(flag=flag)
    return SourceError(
        name=source.name,
        tokens=_of_logs(tokens, prompts, prompts)[0],
        mse=unknown if lost else _of_logs(mse, prompts, equal)[0],
        saving=unknown if lost else _of_logs(saving, prompts, equal)[0],
        scale=scale,
        bias=unknown if lost else _root(_percentile((bias / base[0])[:drawn])),
        unbiased=source.unbiased,
        log_error=math.nan if lost else _of_logs(saving, prompts, equal)[1],
        effective=equal,
    )


def _percentile(values: NDArray) -> Ranged:
    """The first value with the percentile interval of the others."""
    return Ranged(float(values[0]), *resampling.interval(values[1:]))


def _of_logs(values: NDArray, prompts: int, equal: float) -> tuple[Ranged, float]:
    """The first value, its interval by Student's t of logarithms, and the standard error of its logarithm.

    The error is that of the jackknife, the last values, each without a prompt, or the relative one of the values where
    some are not positive; the degrees of freedom are equal − 1.
    """
    left_out = values[-prompts:]
    if (left_out > 0).all():
        error = resampling.standard_error(np.log(left_out))
    else:
        error = resampling.standard_error(left_out) / float(values[0])
    reach = math.exp(min(_quantile(0.975, equal) * error, 700.0))
    return Ranged(float(values[0]), float(values[0]) / reach, float(values[0]) * reach), error


def _quantile(level: float, equal: float) -> float:
    """Quantile of Student's t for so many equal prompts; of the normal distribution where their number is not known."""
    from scipy.special import stdtrit  # takes longer to load than everything else here

    return float(stdtrit(1e6 if math.isnan(equal) else max(equal - 1, 1.0), level))


def _root(square: Ranged) -> Ranged:
    """Roots of the numbers, 0 for those below 0."""
    value, low, high = (math.sqrt(max(v, 0.0)) if v == v else math.nan for v in (square.value, square.low, square.high))
    return Ranged(value, low, high)


def _halves(halves: tuple[int, int], vectors: int) -> tuple[NDArray, NDArray, NDArray]:
    """Mean of two base vectors (V,), and the forms (V, V) of ⟨u, u′⟩ and (‖u‖² + ‖u′‖²)/2."""
    first, other = np.eye(vectors)[list(halves)]
    both = (np.outer(first, other) + np.outer(other, first)) / 2
    return (first + other) / 2, both, (np.outer(first, first) + np.outer(other, other)) / 2
