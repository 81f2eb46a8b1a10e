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

Standardized advantages (GRPO) for two-valued rewards, from class-mean blocks of the Gram.

A = (r − r̄)/(σ_K + ε) takes two values, so with K successes in a group of G, rewards apart by γ and q = K/G

    (1/G) Σ A_i s_i = a_K (s̄₊ − s̄₋),   a_K = γ q(1−q) / (σ_K + ε),   a_0 = a_G = 0

Given K, the rollouts of a class are independent draws, so a random subset of G of a prompt's n rollouts is a
draw of the group: K is hypergeometric, and E‖s̄₊‖² over subsets follows from the mean diagonal and
off-diagonal entries of the class blocks. Averages over all subsets are unbiased (complete U-statistics) for
every G up to n, dead groups included, without knowing the success rate. G beyond n would need a model of the success
rates. Method of this project; the identity for one group is that of arXiv:2606.29238.
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
from grposcope.maths.dead_groups import log_choose
from grposcope.maths.gram_checks import checked

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
    classes: _ClassMeans | None
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
        block = _blocks_of(gram, used_columns, group)
        square = (
            gram.reshape(len(used_columns), group, len(used_columns), group)[used_columns][:, :, used_columns]
            if gram.ndim == 2
            else None
        )
        rewards, present = rewards[used_columns], present[used_columns]
        cross = None if square is None else _across_prompts(square, _leave_one_out(rewards, present))
        classes = _class_means(block, square, rewards, present, values)
        blocks.append(block)
        crosses.append(cross)
        directions.append(classes)
        every.append((rewards, present))
    rewards, present = (np.concatenate(arrays) for arrays in zip(*every, strict=True))
    drawn = resampling.bootstrap(len(rewards), replicates, seed)
    return _moments(
        np.concatenate(blocks),
        _class_diagonal(crosses),
        _joined_classes(directions),
        rewards,
        present,
        least,
        flag,
        drawn,
    )


def _blocks_of(gram: NDArray, used: NDArray, group: int) -> NDArray:
    """Blocks of the Gram within each used prompt, (P, G, G)."""
    if gram.ndim == 3:
        return gram[used]
    prompts = np.arange(len(used))
    return gram.reshape(len(used), group, len(used), group)[prompts, :, prompts][used]


def from_scores(scores: NDArray, rewards: NDArray, replicates: int = 1000, seed: int = 0) -> Moments:
    """`from_gram` of the Gram of scores (P, G, D), of which only the blocks within prompts are made: fast for small D.

    All rollouts must be present. `classes` is without its directions across prompts.
    """
    present = np.ones(rewards.shape, bool)
    _, least, flag = _used(present)
    gradients = np.einsum("pg,pgd->pd", _leave_one_out(rewards, present), scores)
    blocks = scores @ scores.swapaxes(-1, -2)
    classes = _class_means(blocks, None, rewards, present)
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
    classes: _ClassMeans | None,
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
# `_squared_gradient` is `none`, and `_centered_second_moment` less it is Σ₁; they vary less and need one rollout fewer.


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


@dataclass(frozen=True)
class _ClassMeans:
    """Class-mean statistics of the Gram of P prompts, for the classes of higher and of lower reward.

    successes, sizes (P,): number of rollouts with the higher reward, and of all. gap: γ, the higher reward less the
    lower. diagonal (P, 2), off_diagonal (P, 2): mean entry of the Gram on and off its diagonal within each class,
    the higher reward first; 0 where a class has no such entry. between (P,): mean entry between the classes.
    directions (P, P): ⟨d_p, d_q⟩ with d = s̄₊ − s̄₋, 0 where a class is empty, NaN for prompts of different
    probes; None without a Gram across prompts.
    """

    successes: NDArray
    sizes: NDArray
    gap: float
    diagonal: NDArray
    off_diagonal: NDArray
    between: NDArray
    directions: NDArray | None

    def scale(self, group: int, ddof: int, eps: float) -> NDArray:
        """Scale a_K of the gradient for K = 0 … G successes, (G + 1,)."""
        q = np.arange(group + 1) / group
        deviation = self.gap * np.sqrt(q * (1 - q) * group / (group - ddof))
        live = (q > 0) & (q < 1)
        return np.where(live, self.gap * q * (1 - q) / np.where(live, deviation + eps, 1.0), 0.0)

    def chances(self, group: int) -> NDArray:
        """Hypergeometric P(K) for a random subset of `group` of each prompt's rollouts, (P, G + 1)."""
        k, successes, size = np.arange(group + 1), self.successes[:, None], self.sizes[:, None]
        logs = log_choose(successes, k) + log_choose(size - successes, group - k) - log_choose(size, group)
        return np.exp(logs)

    def second(self, group: int, ddof: int, eps: float) -> NDArray:
        """Unbiased E‖ĝ‖² for one group of each prompt, (P,)."""
        k = np.arange(1, group)
        plus = (self.diagonal[:, :1] + (k - 1) * self.off_diagonal[:, :1]) / k
        minus = (self.diagonal[:, 1:] + (group - k - 1) * self.off_diagonal[:, 1:]) / (group - k)
        squares = plus + minus - 2 * self.between[:, None]
        a, chances = self.scale(group, ddof, eps)[1:-1], self.chances(group)[:, 1:-1]
        return (chances * a**2 * squares).sum(-1)

    def first(self, group: int, ddof: int, eps: float) -> NDArray:
        """Coefficient ā_p in the unbiased expectation ā_p d_p of ĝ, its average over all subsets, (P,)."""
        return self.chances(group) @ self.scale(group, ddof, eps)

    def leave_one_out(self) -> NDArray:
        """Coefficient of d_p in the leave-one-out gradient of all rollouts of a prompt, (P,)."""
        q = self.successes / self.sizes
        return self.gap * q * (1 - q) * self.sizes / (self.sizes - 1)

    def pooled(self, group: int, weights: NDArray, ddof: int, eps: float) -> tuple[NDArray, NDArray, NDArray]:
        """E‖ĝ‖², ‖E ĝ‖² and the squared bias ‖E ĝ − E g‖² for prompt weights (k, P), each (k,)."""
        assert self.directions is not None
        first = self.first(group, ddof, eps)
        bias = first - self.leave_one_out()
        squares = [resampling.pair_mean(c[:, None] * self.directions * c[None, :], weights) for c in (first, bias)]
        return resampling.mean(self.second(group, ddof, eps), weights), squares[0], squares[1]


def _class_means(
    blocks: NDArray, gram: NDArray | None, rewards: NDArray, present: NDArray, values: NDArray | None = None
) -> _ClassMeans | None:
    """Class means of Gram blocks (P, G, G) and, where given, of the whole gram (P, G, P, G).

    rewards (P, G), present (P, G): which rollouts exist. values: those that rewards take, by default in this probe.
    None unless they are exactly two.
    """
    if values is None:
        values = np.unique(rewards[present])
    if len(values) != 2:
        return None
    member = np.stack([present & (rewards == values[1]), present & (rewards == values[0])])
    count = member.sum(-1).astype(float)  # (2, P)
    total = np.einsum("cpi,pij,cpj->cp", member, blocks, member)
    lengths = np.einsum("cpi,pii->cp", member, blocks)
    between = np.einsum("pi,pij,pj->p", member[0], blocks, member[1])
    means = member / np.maximum(count, 1)[..., None]
    contrast = np.where((count > 0).all(0)[:, None], means[0] - means[1], 0.0)
    return _ClassMeans(
        successes=count[0].astype(int),
        sizes=present.sum(-1),
        gap=float(values[1] - values[0]),
        diagonal=(lengths / np.maximum(count, 1)).T,
        off_diagonal=((total - lengths) / np.maximum(count * (count - 1), 1)).T,
        between=between / np.maximum(count[0] * count[1], 1),
        directions=None if gram is None else _across_prompts(gram, contrast),
    )


def _joined_classes(parts: Sequence[_ClassMeans | None]) -> _ClassMeans | None:
    """The class means of several probes as of one; None where one has none."""
    present = [moments for moments in parts if moments is not None]
    if len(present) < len(parts):
        return None
    names = ("successes", "sizes", "diagonal", "off_diagonal", "between")
    return _ClassMeans(
        gap=present[0].gap,
        directions=_class_diagonal([moments.directions for moments in present]),
        **{name: np.concatenate([getattr(moments, name) for moments in present]) for name in names},
    )


def _class_diagonal(parts: Sequence[NDArray | None]) -> NDArray | None:
    """Square matrices (p, p) as blocks on the diagonal of one, NaN outside of them; None where one is None."""
    present = [moments for moments in parts if moments is not None]
    if len(present) < len(parts):
        return None
    ends = np.cumsum([len(moments) for moments in present])
    whole = np.full((ends[-1], ends[-1]), np.nan)
    for moments, end in zip(present, ends, strict=True):
        whole[end - len(moments) : end, end - len(moments) : end] = moments
    return whole


def _across_prompts(gram: NDArray, weights: NDArray) -> NDArray:
    """⟨Σ_i w_pi s_pi, Σ_j w_qj s_qj⟩ for all prompts p, q, (P, P), from gram (P, G, P, G) and weights (P, G)."""
    return np.einsum("pi,piq->pq", weights, np.einsum("piqj,qj->piq", gram, weights))
