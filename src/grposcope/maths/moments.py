"""Moments of the GRPO gradient from one Gram matrix: ζ₁, ζ₂, ‖g‖², Σ₁, Δ and V_p, all unbiased.

The leave-one-out gradient of a group is the U-statistic with kernel h(i,j) = ½ (r_i − r_j)(s_i − s_j)
(arXiv:2603.01162, Lemma 1). With r and K_ij = ⟨s_i, s_j⟩ alone, and over distinct rollouts,

    both = E⟨h(1,2), h(1,2)⟩ = ζ₂ + ‖g‖²      one = E⟨h(1,2), h(1,3)⟩ = ζ₁ + ‖g‖²
    none = E⟨h(1,2), h(3,4)⟩ = ‖g‖²           Σ₁ = 4 ζ₁,  Δ = 2 (ζ₂ − 2 ζ₁),  V_p = E‖g(x)‖² − ‖E g(x)‖²

Closed form (method of this project; no publication): with c = r − r̄, K̃ the doubly centred Gram of the n rollouts, and
the power sums C = Σ c², Q = tr K̃, D = Σ c² K̃_ii, U = cᵀ K̃ c,

    Σ‖h_ij‖² = ½ (n D + C Q) + U =: S      Σ_i ‖Σ_j h_ij‖² = ¼ (n² D + 3 n U) =: R      ‖Σ_ij h_ij‖² = n² U
    both = S / n(n−1),  one = (R − S) / n(n−1)(n−2),  none = (n² U − 4R + 2S) / n(n−1)(n−2)(n−3)

so `none` needs 4 rollouts of a prompt, `one` 3 and `both` 2; a moment that cannot be estimated is NaN with a flag.
‖E g‖² is estimated from pairs of different prompts, so it needs the whole (B, B) Gram matrix and two prompts.

Estimates are not clipped: an unbiased estimate of a variance may be negative, and is then flagged. Dead groups count
with their zeros. Groups may have unequal sizes (NaN rewards); prompts with too few rollouts are left out and counted
in the flag. A truncated rollout is a draw like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.maths import resampling
from grposcope.maths.class_means import ClassMeans, across_prompts, class_means, diagonal, joined
from grposcope.maths.gram_checks import blocks_of, checked

LEAST = 4
"""Rollouts of a prompt from which ‖g‖² can be estimated without bias."""


def _not_taken() -> NDArray:
    return np.array(np.nan)


@dataclass(frozen=True)
class Statistics:
    """U-statistics as arrays of one shape: per prompt (P,), or pooled over prompts, one per resample (k,).

    both, one, none: means of ⟨h, h⟩ over pairs of pairs that share two, one, no rollouts.
    mean2: ‖E_x g(x)‖² from pairs of prompts; NaN for a single prompt.
    norm: E‖s‖² = tr F, F the Fisher matrix. raw: E r²‖s‖². tilt: Cov(r, ‖s‖²). tilt2: tilt²/norm, the excess
    variance of the baseline V over the best constant one (jackknifed over rollouts, so its bias is O(1/n²)).
    score2: ‖E s‖², which is 0 for a true score. reward_variance: Var(r) within prompts.
    paid: E r‖s‖². value_norm, value_paid: V E‖s‖² and V E r‖s‖², V = E r of the prompt, from distinct rollouts.
    value2_norm: V² E‖s‖². NaN where they were not taken.
    """

    both: NDArray
    one: NDArray
    none: NDArray
    mean2: NDArray
    norm: NDArray
    raw: NDArray
    tilt: NDArray
    tilt2: NDArray
    score2: NDArray
    reward_variance: NDArray
    paid: NDArray = field(default_factory=_not_taken)
    value_norm: NDArray = field(default_factory=_not_taken)
    value_paid: NDArray = field(default_factory=_not_taken)
    value2_norm: NDArray = field(default_factory=_not_taken)

    @property
    def zeta1(self) -> NDArray:
        """ζ₁ = tr Var(E[h | i])."""
        return self.one - self.none

    @property
    def zeta2(self) -> NDArray:
        """ζ₂ = tr Var h."""
        return self.both - self.none

    @property
    def sigma1(self) -> NDArray:
        """Σ₁ = 4 ζ₁ = tr Var((r − V) s), the oracle's variance per rollout."""
        return 4 * self.zeta1

    @property
    def delta(self) -> NDArray:
        """Δ = 2 (ζ₂ − 2 ζ₁) = Var(r) tr F + ‖g‖², the price of not knowing V."""
        return 2 * (self.both - 2 * self.one + self.none)

    @property
    def prompt_variance(self) -> NDArray:
        """V_p = tr Var_x g(x)."""
        return self.none - self.mean2


@dataclass(frozen=True)
class Moments:
    """The moments of one probe, pooled over its prompts, each with its jackknife standard error over prompts.

    g2: E_x‖g(x)‖². zeta1, zeta2, sigma1, delta: averages over prompts of ζ₁, ζ₂, Σ₁, Δ.
    prompt_variance: V_p. mean2: ‖E_x g(x)‖². per_prompt: the same per prompt (P,).
    pooled, jackknife, bootstrap: the statistics behind them, for all prompts (1,), without each prompt
    (P,), and for each bootstrap draw (R,). weights (R, P): how often each draw has each prompt. classes: what
    standardized advantages need, None unless rewards take two values. informative (P,): which groups measure ‖g‖²
    (`informative`). group: the largest group of the probe.
    flag: the reason for doubt about all moments, empty if there is none.
    """

    g2: Estimate
    zeta1: Estimate
    zeta2: Estimate
    sigma1: Estimate
    delta: Estimate
    prompt_variance: Estimate
    mean2: Estimate
    per_prompt: Statistics
    pooled: Statistics
    jackknife: Statistics
    bootstrap: Statistics
    weights: NDArray
    classes: ClassMeans | None
    informative: NDArray
    prompts: int
    group: int
    flag: str

    @property
    def largest_share(self) -> float:
        """Share of one prompt, that with the most, in Σ_x E⟨h, h⟩ over prompts; NaN where that is not known."""
        both = self.per_prompt.both[np.isfinite(self.per_prompt.both)]
        total = float(both.sum())
        return float(both.max()) / total if total > 0 else math.nan

    def estimate(self, quantity: Callable[[Statistics], NDArray], flag: str = "") -> Estimate:
        """A function of the pooled statistics with its jackknife standard error.

        A quotient may divide by 0 where a resample has no gradient; its value is then infinite or NaN.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            value, left_out = np.reshape(quantity(self.pooled), -1), np.atleast_1d(quantity(self.jackknife))
        return resampling.estimate(float(value[0]), left_out, flag or self.flag)

    def interval(self, quantity: Callable[[Statistics], NDArray], level: float = 0.95) -> tuple[float, float]:
        """Percentile interval of a function of the pooled statistics, by bootstrap over prompts."""
        with np.errstate(divide="ignore", invalid="ignore"):
            replicates = np.atleast_1d(quantity(self.bootstrap))
        return resampling.interval(replicates, level)


def from_gram(gram: NDArray, rewards: NDArray, replicates: int = 1000, seed: int = 0) -> Moments:
    """Moments from the Gram matrix of scores, (B, B) prompt-major, and rewards (P, G), NaN for an absent rollout.

    A Gram (P, G, G) of the blocks within prompts is accepted too; V_p and ‖E g‖² are then NaN. replicates, seed:
    of the bootstrap over prompts. Raises UserError for shapes that do not fit, values that are not finite, a Gram
    that is not symmetric or not positive semi-definite beyond rounding, and for no group of two.
    """
    return from_grams([(gram, rewards)], replicates, seed)


def from_grams(probes: Sequence[tuple[NDArray, NDArray]], replicates: int = 1000, seed: int = 0) -> Moments:
    """Moments of several probes with groups of one size, pooled: each a Gram and rewards as `from_gram` takes them.

    Every prompt counts once, whichever probe it is of. Products of gradients are known within a probe only, so ‖E g‖²
    is the mean over pairs of prompts of one probe, and V_p is how prompts differ under the same weights. UserError as
    in `from_gram`, and for groups of several sizes.
    """
    if len({rewards.shape[-1] for _, rewards in probes}) > 1:
        raise UserError("probes with groups of different sizes cannot be pooled; give those of one size")
    parts = [checked(gram, rewards) for gram, rewards in probes]
    used, least, flag = _used(np.concatenate([present for _, _, present in parts]))
    ends = np.cumsum([len(rewards) for _, rewards, _ in parts])
    blocks, crosses, directions, every = [], [], [], []
    values = np.unique(np.concatenate([rewards[present] for _, rewards, present in parts]))
    for (gram, rewards, present), used_columns in zip(parts, np.split(used, ends[:-1]), strict=True):
        group = rewards.shape[1]
        block = blocks_of(gram, used_columns, group)
        square = (
            gram.reshape(len(used_columns), group, len(used_columns), group)[used_columns][:, :, used_columns]
            if gram.ndim == 2
            else None
        )
        rewards, present = rewards[used_columns], present[used_columns]
        cross = None if square is None else across_prompts(square, _leave_one_out(rewards, present))
        classes = class_means(block, square, rewards, present, values)
        blocks.append(block)
        crosses.append(cross)
        directions.append(classes)
        every.append((rewards, present))
    rewards, present = (np.concatenate(arrays) for arrays in zip(*every, strict=True))
    drawn = resampling.bootstrap(len(rewards), replicates, seed)
    return _moments(np.concatenate(blocks), diagonal(crosses), joined(directions), rewards, present, least, flag, drawn)


def from_scores(scores: NDArray, rewards: NDArray, replicates: int = 1000, seed: int = 0) -> Moments:
    """`from_gram` of the Gram of scores (P, G, D), of which only the blocks within prompts are made: fast for small D.

    All rollouts must be present. `classes` is without its directions across prompts.
    """
    present = np.ones(rewards.shape, bool)
    _, least, flag = _used(present)
    gradients = np.einsum("pg,pgd->pd", _leave_one_out(rewards, present), scores)
    blocks = scores @ scores.swapaxes(-1, -2)
    classes = class_means(blocks, None, rewards, present)
    cross = gradients @ gradients.T
    drawn = resampling.bootstrap(len(rewards), replicates, seed)
    return _moments(blocks, cross, classes, rewards, present, least, flag, drawn)


def informative(rewards: NDArray, present: NDArray) -> NDArray[np.bool_]:
    """Which groups measure ‖g‖², (P,): at least two rollouts on either side of a difference in reward.

    ‖g‖² is measured by two pairs of rollouts that differ in reward and share no rollout. A group with one success has
    none, and its estimate is 0 by algebra. For rewards of more than two values a group is informative if no single
    rollout carries its spread: leaving out any one keeps a quarter of Σ(r − r̄)². For two values and groups of four or
    more that is the same as two successes and two failures. rewards and which are present: both (P, G).
    """
    n = present.sum(-1)
    mean = np.where(present, rewards, 0.0).sum(-1) / np.maximum(n, 1)
    squares = np.where(present, rewards - mean[:, None], 0.0) ** 2
    total, largest = squares.sum(-1), squares.max(-1)
    scale = np.where(present, np.abs(rewards), 0.0).max(-1) ** 2
    return np.asarray((n >= 4) & (total > 1e-18 * scale) & (largest * n <= 0.75 * total * np.maximum(n - 1, 1)))


def _used(present: NDArray) -> tuple[NDArray, int, str]:
    """Which prompts have enough rollouts (P,), how many that is, and what to say of those left out."""
    sizes = present.sum(-1)
    least = min(LEAST, int(sizes.max()))
    used = sizes >= least
    flag = f"{(~used).sum()} of {len(used)} prompts left out: fewer than {least} rollouts" if not used.all() else ""
    return used, least, flag


def _leave_one_out(rewards: NDArray, present: NDArray) -> NDArray:
    """Weights (r − r̄)/(n−1) of the scores in the leave-one-out gradient of each prompt, (P, G)."""
    return np.asarray(_centred(rewards, present) / (present.sum(-1, keepdims=True) - 1))


def _moments(
    blocks: NDArray,
    cross: NDArray | None,
    classes: ClassMeans | None,
    rewards: NDArray,
    present: NDArray,
    least: int,
    flag: str,
    weights: NDArray,
) -> Moments:
    """Moments from the Gram's blocks (P, G, G) and the products (P, P) of the prompts' leave-one-out gradients.

    weights: of the prompts in each bootstrap replicate.
    """
    per_prompt = _per_prompt(blocks, rewards, present)
    prompts = len(rewards)
    pooled, left_out, drawn = (
        _pool(per_prompt, cross, w) for w in (resampling.point(prompts), resampling.jackknife(prompts), weights)
    )
    if not _centred(rewards, present).any():
        flag = flag or "all rewards equal within every group: no gradient"
    named = {
        name: resampling.estimate(
            float(getattr(pooled, name)[0]), getattr(left_out, name), _flag(name, pooled, least, prompts, cross, flag)
        )
        for name in ("none", "zeta1", "zeta2", "sigma1", "delta", "prompt_variance", "mean2")
    }
    return Moments(
        g2=named.pop("none"),
        **named,
        per_prompt=per_prompt,
        pooled=pooled,
        jackknife=left_out,
        bootstrap=drawn,
        weights=weights,
        classes=classes,
        informative=informative(rewards, present),
        prompts=prompts,
        group=int(present.sum(-1).max()),
        flag=flag,
    )


def per_layer(
    layers: NDArray, names: Sequence[str], rewards: NDArray, replicates: int = 1000, seed: int = 0
) -> dict[str, Moments]:
    """`from_gram` of each layer's Gram, layers (L, B, B) with L names; these Grams add up to the whole one."""
    return {name: from_gram(gram, rewards, replicates, seed) for name, gram in zip(names, layers, strict=True)}


# Estimates for one prompt that assume E s = 0, which holds for scores of whole sampled completions. In expectation
# `squared_gradient` is `none`, and `centered_second_moment` less it is Σ₁; they vary less and need one rollout fewer.


def covariance(rewards: NDArray, norms: NDArray) -> float:
    """Unbiased sample covariance of rewards and squared score norms ‖s‖², (G,) each with G ≥ 2."""
    return float(((rewards - rewards.mean()) * (norms - norms.mean())).sum() / (len(rewards) - 1))


def squared_gradient(rewards: NDArray, gram: NDArray) -> float:
    """Unbiased ‖g‖², g = E[r s], from rewards (G,) and gram (G, G) with G ≥ 3.

    It is the mean over pairs i ≠ j, each reward less the mean reward of all rollouts but these two.
    """
    size, total = len(rewards), rewards.sum()
    others = (total - rewards[:, None] - rewards[None]) / (size - 2)
    terms = (rewards[:, None] - others) * (rewards[None] - others) * gram
    return float((terms.sum() - np.diag(terms).sum()) / (size * (size - 1)))


def centered_second_moment(rewards: NDArray, norms: NDArray) -> float:
    """Unbiased E[(r − V)² k] = E[r²k] − 2 V E[rk] + V² E[k] for k = ‖s‖², from rewards and norms (G,) with G ≥ 3.

    Each product of expectations is estimated from distinct rollouts.
    """
    n, r, k = len(rewards), rewards, norms
    pairs = r.sum() * (r * k).sum() - (r * r * k).sum()  # Σ_{i≠j} r_i r_j k_j
    # Σ over distinct i, j, l of r_i r_j k_l is the sum over all less the terms where two or three places agree
    triples = r.sum() ** 2 * k.sum() - 2 * pairs - (r * r).sum() * k.sum()
    return float((r * r * k).sum() / n - 2 * pairs / (n * (n - 1)) + triples / (n * (n - 1) * (n - 2)))


def _centred(rewards: NDArray, present: NDArray) -> NDArray:
    """r − r̄ over the rollouts that are present; exactly 0 for absent ones and where all rewards are equal."""
    high, low = np.where(present, rewards, -np.inf).max(-1), np.where(present, rewards, np.inf).min(-1)
    mean = np.where(present, rewards, 0).sum(-1) / present.sum(-1)
    return np.where(present & (high > low)[:, None], rewards - mean[:, None], 0.0)


def _per_prompt(blocks: NDArray, rewards: NDArray, present: NDArray) -> Statistics:
    """Every statistic of each prompt, from Gram blocks (P, G, G), rewards (P, G) and which are present (P, G)."""
    n = present.sum(-1).astype(float)
    c, lengths = _centred(rewards, present), np.where(present, np.einsum("pii->pi", blocks), 0.0)
    entries = np.where(present[:, :, None] & present[:, None, :], blocks, 0.0)
    rows = entries.sum(-1) / n[:, None]
    tilde = np.where(present, lengths - 2 * rows + (rows.sum(-1) / n)[:, None], 0.0)  # diagonal of the centred Gram
    u = np.einsum("pi,pij,pj->p", c, entries, c)  # Σ c = 0, so centring K changes nothing here
    d, cq = (c**2 * tilde).sum(-1), (c**2).sum(-1) * tilde.sum(-1)
    s, r = (n * d + cq) / 2 + u, (n**2 * d + 3 * n * u) / 4
    norm, tilt = lengths.sum(-1) / n, (c * lengths).sum(-1) / (n - 1)
    paid, value_norm, value_paid, value2_norm = _products(np.where(present, rewards, 0.0), lengths, n)
    return Statistics(
        both=s / (n * (n - 1)),
        one=_over(r - s, n * (n - 1) * (n - 2)),
        none=_over(n**2 * u - 4 * r + 2 * s, n * (n - 1) * (n - 2) * (n - 3)),
        mean2=np.full(len(n), np.nan),
        norm=norm,
        raw=(np.where(present, rewards, 0.0) ** 2 * lengths).sum(-1) / n,
        tilt=tilt,
        tilt2=_jackknifed(c, lengths, present, n),
        score2=(entries.sum((-2, -1)) - lengths.sum(-1)) / (n * (n - 1)),
        reward_variance=(c**2).sum(-1) / (n - 1),
        paid=paid,
        value_norm=value_norm,
        value_paid=value_paid,
        value2_norm=value2_norm,
    )


def _products(rewards: NDArray, lengths: NDArray, n: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """E[r k], V E[k], V E[r k] and V² E[k] of each prompt for k = ‖s‖², (P,) each, products from distinct rollouts.

    rewards and lengths (P, G): 0 for an absent rollout. The last is NaN for fewer than three rollouts.
    """
    r, k, rk = rewards.sum(-1), lengths.sum(-1), (rewards * lengths).sum(-1)
    squares, squares_k = (rewards**2).sum(-1), (rewards**2 * lengths).sum(-1)
    pairs = r * rk - squares_k
    triples = r**2 * k - 2 * pairs - squares * k
    two = n * (n - 1)
    return rk / n, _over(r * k - rk, two), _over(pairs, two), _over(triples, two * (n - 2))


def _jackknifed(c: NDArray, lengths: NDArray, present: NDArray, n: NDArray) -> NDArray:
    """tilt²/norm, jackknifed over the rollouts of each prompt; NaN for fewer than three."""

    def ratio(cov: NDArray, norm: NDArray) -> NDArray:
        return np.divide(cov**2, norm, out=np.zeros_like(norm), where=norm > 0)

    m = (n - 1)[:, None]
    norms = (lengths.sum(-1, keepdims=True) - lengths) / m
    sums = (c * lengths).sum(-1, keepdims=True) - c * lengths + c * norms
    without = np.where(present, ratio(_over(sums, m - 1), norms), 0.0).sum(-1) / n
    whole = ratio((c * lengths).sum(-1) / (n - 1), lengths.sum(-1) / n)
    return np.where(n > 2, n * whole - (n - 1) * without, np.nan)


def _over(numerator: NDArray, denominator: NDArray) -> NDArray:
    """The quotient, NaN where the denominator is 0: too few rollouts."""
    denominator = np.broadcast_to(denominator, numerator.shape)
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator > 0)


def _pool(per_prompt: Statistics, cross: NDArray | None, weights: NDArray) -> Statistics:
    """Averages over prompts for k weightings of the prompts, weights (k, P)."""
    pooled = {f.name: resampling.mean(getattr(per_prompt, f.name), weights) for f in fields(Statistics)}
    if cross is not None:
        pooled["mean2"] = resampling.pair_mean(cross, weights)
    return Statistics(**pooled)


def _flag(name: str, pooled: Statistics, least: int, prompts: int, cross: NDArray | None, flag: str) -> str:
    """The reason for doubt about one pooled moment, empty if there is none."""
    value = float(getattr(pooled, name)[0])
    if name in ("mean2", "prompt_variance") and cross is None:
        return "needs the Gram across prompts, (B, B)"
    if name in ("mean2", "prompt_variance") and prompts < 2:
        return "one prompt: nothing is known of how prompts differ"
    if name != "mean2" and least < LEAST:
        return f"needs {LEAST} rollouts of a prompt, the probe has {least}"
    if not flag and value < 0:
        return "negative: not told apart from 0 by this probe"
    return flag
