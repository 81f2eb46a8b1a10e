"""Bias and variance of the gradient under a correction, and the rollouts that it needs, from Gram matrices of scores.

With coefficients c_t, u_i = A_i/G and v_i = Σ_t c_it s_it, a prompt's estimate is ĝ_c(x) = Σ_i u_i v_i and the batch's
is their mean over P prompts. Full weights c_t = w give g without bias (for leave-one-out advantages), so that the
difference d = ĝ_c − ĝ_full has the bias b as its mean. Everything follows from products of the estimates of prompts:

    ‖b‖² = mean over x ≠ y of ⟨d(x), d(y)⟩           ‖g‖² and ⟨m, g⟩ likewise, m = E ĝ_c: pairs share no rollout
    tr C = mean_x ‖ĝ_c(x)‖² − ‖m‖²                   variance of the batch's estimate: V_c = tr C / P
    need = (‖m‖² + V_c) ‖g‖² / ⟨m, g⟩² − 1           what noise and a wrong direction cost, per progress of a step

The first two are unbiased for any advantage; for leave-one-out, V_c = (V_p + Σ₁/G + Δ/(G(G−1)))/P of `maths.moments` to
the last digit. A step along ĝ_c of the best size gains ⟨m, g⟩²/E‖ĝ_c‖², so need falls with the rollouts and is 0
without noise and bias; dropping everything makes it infinite, where the mean squared error would call that good.

Interval of ‖b‖²: of the mean d̄ over prompts, ‖d̄‖² P f/tr C is noncentral χ² with f = (tr C)²/tr C² degrees of freedom
and noncentrality P f ‖b‖²/tr C. tr C² is unbiased for normal estimates (Bai & Saranadasa 1996). Standard errors are by
jackknife over prompts. Of J batches, between which no product is known, ‖d̄‖² is averaged, which multiplies f and the
noncentrality by J; V_c stays that of one batch, or of one of as many prompts as is asked for. Method of this project.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.offpolicy.khat import NO_CHOICE, NO_NUMBER
from grposcope.maths import confidence, resampling
from grposcope.maths.confidence import quantile, sides
from grposcope.maths.corrections import FULL
from grposcope.maths.importance import Floats

LEVEL = 0.9
"""Of intervals."""

Z = 1.6448536269514722
"""Standard errors at which a one-sided test has 5 % of false alarms."""

WORTH = 1.1
"""Rollouts that no correction may need, as a multiple of what the best one needs, for none to be as good."""

NEAR = 0.1
"""How far the mean of the raw weights w may be from 1, its expectation, for intervals of a bias to be given."""

LEAST = 10
"""Prompts from which a correction is chosen."""

UNKNOWN = "the gradient does not differ from 0 beyond noise"
"""Why a need is not known."""


@dataclass(frozen=True)
class GradientProducts:
    """Inner products (P, P) of the estimates of prompts: own ⟨ĝ_c(x), ĝ_c(y)⟩, cross ⟨ĝ_c(x), ĝ_full(y)⟩, full.

    batches: how many of one size these are, one after the other; products between batches are not known and 0.
    """

    own: Floats
    cross: Floats
    full: Floats
    batches: int = 1

    @property
    def size(self) -> int:
        """Prompts of a batch."""
        return len(self.own) // self.batches

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which products are known, (P, P)."""
        return np.kron(np.eye(self.batches), np.ones((self.size, self.size))) > 0

    @property
    def difference(self) -> Floats:
        """⟨d(x), d(y)⟩ of d = ĝ_c − ĝ_full, (P, P)."""
        return self.own - self.cross - self.cross.T + self.full


def pooled(products: Sequence[GradientProducts]) -> GradientProducts:
    """Products of several independent batches; UserError unless they have one size."""
    if len({product.size for product in products}) > 1:
        raise UserError("batches of different sizes cannot be pooled; give each the same number of prompts")
    from scipy.linalg import block_diag

    blocks = ([getattr(product, name) for product in products] for name in ("own", "cross", "full"))
    own, cross, full = (np.asarray(block_diag(*each)) for each in blocks)
    return GradientProducts(own, cross, full, sum(product.batches for product in products))


def leave_one_out(rewards: Floats) -> Floats:
    """Leave-one-out advantages G/(G−1) (r − r̄) of rewards (P, G)."""
    group = rewards.shape[1]
    return np.asarray((rewards - rewards.mean(1, keepdims=True)) * (group / (group - 1)))


@dataclass(frozen=True)
class GradientError:
    """Error of the gradient of a batch of P prompts under one correction.

    bias2: ‖b‖² and its `interval` at LEVEL, NaN where it must not be given. told: whether there is a bias, beyond
    chance. variance: V_c. need: rollouts needed, of which ratios have a meaning. cost, costs (P,): ln need, and
    the same without each prompt; NaN where the direction of the gradient is not known.
    """

    bias2: Estimate
    interval: tuple[float, float]
    told: bool
    variance: Estimate
    need: Estimate
    cost: float = math.nan
    costs: Floats = field(default_factory=lambda: np.empty(0))


def measure(
    products: GradientProducts, k: float, beyond: bool = True, mean_weight: float = 1.0, batch: int | None = None
) -> GradientError:
    """The error under a correction; k: k̂ of w ‖A s‖ (`_tail`); beyond: whether a drawn ratio was cut.

    batch: prompts of the batch whose variance and need are told, by default those of the batches at hand.
    mean_weight: of the raw weights. Above NO_NUMBER of k̂, or without it, there is no number. No interval is given
    where the mean weight is further than NEAR from 1: completions with large weights were not drawn, or too often. A
    small k̂ does not say that they were: it is smallest where the largest weights are missing, so that intervals given
    below 0.5 of it cover less than all do (`experiments/offpolicy.md`). Without a ratio beyond the bound a correction
    looks like full weights, whatever its bias is: then its bias is not known.
    """
    prompts = len(products.own)
    flag = _doubt(k, prompts)
    means = _means(products, batch or products.size)
    bias2, variance, need, cost = (
        (float(values[0]), values[1:]) for values in (_bias2(means), _variance(means), _need(means), _cost(means))
    )
    if not k <= NO_NUMBER or prompts < 2:
        nothing = Estimate(math.nan, math.nan, prompts, flag)
        return GradientError(nothing, (math.nan, math.nan), False, nothing, nothing)
    unseen = "" if beyond else "no ratio lies beyond the bound, so its bias is unknown"
    bias = Estimate(math.nan, math.nan, prompts, unseen) if unseen else resampling.estimate(*bias2, flag)
    bounded = beyond and abs(mean_weight - 1) <= NEAR
    return GradientError(
        bias,
        _bias_interval(products.difference, batches=products.batches) if bounded else (math.nan, math.nan),
        bounded and _told(products.difference, products.batches),
        resampling.estimate(*variance, flag),
        resampling.estimate(*need, flag if math.isfinite(need[0]) else UNKNOWN),
        *cost,
    )


def _bias_interval(difference: Floats, level: float = LEVEL, batches: int = 1) -> tuple[float, float]:
    """Interval of ‖b‖² from the products (P, P) of differences, batch after batch; 0 to 0 where all of them are 0."""
    from scipy.special import chndtr, chndtrinc

    blocks = _blocks(difference, batches)
    spread, freedom = _spread(blocks), _freedom(blocks) * batches
    if not spread > 0:
        return 0.0, 0.0
    unit = spread / (blocks.shape[1] * freedom)
    seen = max(float(blocks.mean()), 0.0) / unit
    central = float(chndtr(seen, freedom, 0.0))
    ends = [float(chndtrinc(seen, freedom, p)) if central > p else 0.0 for p in ((1 + level) / 2, (1 - level) / 2)]
    return ends[0] * unit, ends[1] * unit


def _blocks(products: Floats, batches: int) -> Floats:
    """The products of each batch, (J, P, P)."""
    size = len(products) // batches
    every = products.reshape(batches, size, batches, size)
    return np.stack([every[j, :, j] for j in range(batches)])


def _told(difference: Floats, batches: int) -> bool:
    """Whether ‖b‖² lies above what chance makes of no bias in one of a hundred batches or so."""
    blocks = _blocks(difference, batches)
    spread = _spread(blocks)
    limit = math.sqrt(2) * Z * spread / (blocks.shape[1] * math.sqrt(_freedom(blocks) * batches))
    return spread > 0 and float(np.mean(_pair_means(blocks))) > limit


def _pair_means(blocks: Floats) -> Floats:
    """Mean over pairs x ≠ y of the products of each batch, (J,)."""
    return np.concatenate([resampling.pair_mean(block, resampling.point(len(block))) for block in blocks])


def _spread(blocks: Floats) -> float:
    """tr C of one prompt's estimate, from products (J, P, P) of the estimates."""
    return float(np.mean(np.trace(blocks, axis1=1, axis2=2) / blocks.shape[1] - _pair_means(blocks)))


def _freedom(blocks: Floats) -> float:
    """f = (tr C)²/tr C², from 1 to P − 1, of the means over batches (J, P, P)."""
    n = blocks.shape[1] - 1
    centred = (
        blocks - blocks.mean(1, keepdims=True) - blocks.mean(2, keepdims=True) + blocks.mean((1, 2), keepdims=True)
    )
    trace, squares = np.trace(centred, axis1=1, axis2=2) / n, (centred**2).sum((1, 2)) / n**2
    unbiased = float(np.mean((squares - trace**2 / n) * n**2 / ((n + 2) * max(n - 1, 1))))
    return float(np.clip(np.mean(trace) ** 2 / unbiased, 1, max(n, 1))) if unbiased > 0 else float(max(n, 1))


@dataclass(frozen=True)
class _Means:
    """Means of products: of all P prompts, then without each of them, (1 + P,).

    size: prompts of the batch whose variance is told. own, cross, full: over pairs of different prompts of a batch.
    squares: of ‖ĝ_c(x)‖² over prompts.
    """

    size: int
    own: Floats
    cross: Floats
    full: Floats
    squares: Floats


def _means(products: GradientProducts, size: int) -> _Means:
    squares, usable = np.diag(products.own), products.known
    own, cross, full = (_with_left_out(block, usable) for block in (products.own, products.cross, products.full))
    return _Means(size, own, cross, full, np.append(squares.mean(), resampling.means_left_out(squares)))


def _with_left_out(products: Floats, usable: NDArray[np.bool_]) -> Floats:
    whole = resampling.pair_mean(products, resampling.point(len(products)), usable)
    return np.append(whole, resampling.pair_means_left_out(products, usable))


def _bias2(means: _Means) -> Floats:
    return np.asarray(means.own - 2 * means.cross + means.full)


def _variance(means: _Means) -> Floats:
    """V_c of a batch of that size."""
    return np.asarray((means.squares - means.own) / means.size)


def _need(means: _Means) -> Floats:
    """Rollouts needed; NaN where ⟨m, g⟩ or ‖g‖² is not above 0, so that the direction of the gradient is not known."""
    positive = (means.cross > 0) & (means.full > 0)
    second = means.own + _variance(means)
    return np.where(positive, second * means.full / np.where(positive, means.cross, 1.0) ** 2 - 1, np.nan)


def _cost(means: _Means) -> Floats:
    need = _need(means)
    return np.log(np.where(need > 0, need, np.nan))


def _doubt(k: float, prompts: int) -> str:
    if math.isnan(k):
        return "too few rollouts with a credit for k̂"
    if k > NO_CHOICE:
        return f"k̂ = {k:.2f}: the weights are too heavy-tailed"
    return f"{prompts} prompts: rough standard error" if prompts < resampling.FEW else ""


@dataclass(frozen=True)
class CorrectionChoice:
    """Which correction needs the fewest rollouts, as far as a batch can tell.

    name: empty where that cannot be told; `base` where no other is worth it. ratio: need of it ÷ that of the base;
    interval: of the ratio, at LEVEL. reason: why nothing is chosen.
    """

    name: str
    ratio: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)
    reason: str = ""


def choose(errors: Mapping[str, GradientError], k: float, base: str = "none") -> CorrectionChoice:
    """The correction with the least need of those that surely need at most WORTH times what `base` does.

    One is named where it is seen to need 1/WORTH of the rollouts or less, and `base` where no other is. Where one is
    seen to, but may as well need over WORTH times as many, it cannot be told. k: k̂ of w ‖A s‖. What is sure is sure to
    95 %, by jackknife over prompts of the logarithm of the ratio; for full weights, whose tails a batch may miss,
    with skewness and a prompt that was not drawn (`maths.confidence.mean_interval`).
    """
    comparable = {
        name: error for name, error in errors.items() if math.isfinite(error.cost) and np.isfinite(error.costs).all()
    }
    if not k <= NO_CHOICE:
        return CorrectionChoice("", reason=_doubt(k, LEAST))
    if base not in comparable:
        return CorrectionChoice("", reason=UNKNOWN)
    if (prompts := len(comparable[base].costs)) < LEAST:
        return CorrectionChoice("", reason=f"{prompts} prompts are too few")
    ratios = {
        name: _ratio(error, comparable[base], name == FULL.name) for name, error in comparable.items() if name != base
    }
    worth = {name: ratio for name, ratio in ratios.items() if ratio[0] <= 1 / WORTH}
    if not worth:
        return CorrectionChoice(base, 1.0, (1.0, 1.0))
    safe = {name: ratio for name, ratio in worth.items() if ratio[2] <= WORTH}
    if safe:
        name = min(safe, key=lambda name: safe[name][0])
        return CorrectionChoice(name, safe[name][0], safe[name][1:])
    return CorrectionChoice("", reason="rollouts needed under the corrections differ by less than their errors")


def _ratio(error: GradientError, base: GradientError, unbounded: bool) -> tuple[float, float, float]:
    """need ÷ that of the base, with its interval. unbounded: whether coefficients have tails that a batch may miss."""
    log, left_out = error.cost - base.cost, error.costs - base.costs
    reach = Z * resampling.standard_error(left_out)
    high = log + reach
    if unbounded:
        high = max(high, _mean_interval(confidence.pseudo_values(np.array([log]), left_out))[1])
    return math.exp(log), math.exp(log - reach), math.exp(min(high, 700.0))


def _mean_interval(contributions: NDArray) -> tuple[float, float]:
    """95 % interval of a mean over prompts, contributions (P,): without its skewness, its upper end with a prompt that
    was not drawn. ∞ where it has no upper end within a hundred standard errors."""
    n = len(contributions)
    centre, error = float(contributions.mean()), float(contributions.std(ddof=1)) / math.sqrt(n)
    if not error > 0:
        return centre, centre
    steps = np.concatenate([np.linspace(-12, 12, 961), np.geomspace(12.1, 100, 200)])
    values = centre + error * steps
    below, above = sides(contributions - values[:, None])
    reach = quantile(n)
    inside = np.flatnonzero((below >= -reach) & (above <= reach))
    if not len(inside):
        return centre, centre
    return float(values[inside[0]]), math.inf if inside[-1] == len(steps) - 1 else float(values[inside[-1]])
