"""What the components of a reward weigh in the advantage, with errors by the jackknife over prompts.

Of contributions a_ij = c_gj (r_ij − r̄_gj) to the advantage of rollout i (`aggregation.combine`), by component:

    effective weight   mean over live groups of c_gj σ_gj: λ_j σ_j/σ_S where a sum is standardized (arXiv:2602.05863)
    share              its size over the sum of all sizes, to be held against |λ_j|/Σ|λ|
    variance share     Σ a_ij A_i / Σ A_i², A_i = Σ_j a_ij: with half of each covariance, so that shares sum to 1
    per unit           Σ_g c_gj σ_gj² / Σ_g σ_gj²: what the expected gradient has of ∇E r_j, about
    dead in live       share of the live groups, those with an advantage, in which the component is constant

All are ratios of sums over groups, so the jackknife leaves out each prompt's sums. Where a deviation of the
batch divides all weights it is taken as given. Correlations are those within groups: of r_ij − r̄_gj over rollouts
that both functions judged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from grposcope.core.estimate import Estimate
from grposcope.maths import resampling
from grposcope.maths.aggregation import Aggregation, Combined, Components, Floats, Ints, checked_weights, combine, sums

MUTED = 0.25
"""Share of its intended share below which, with its whole interval, a component is called muted."""

MET = 0.9
"""Share of the rollouts with the best value of a component from which little is left to learn from it."""

NEAR = 1e-9
"""Difference of two advantages, against the largest of their group, up to which they are one."""


@dataclass(frozen=True)
class ComponentWeight:
    """One component: what was asked for and what trains.

    intended: λ_j; intended_share: |λ_j|/Σ|λ|. effective, share, variance_share, per_unit, dead_in_live: as the module
    says.
    mean: of its rewards; absent: share of the rollouts that it did not judge; constant: its only value, NaN where it
    has several; best: share of the rollouts that it judged which have the most that it gave, or the least where its
    weight is negative.
    """

    name: str
    intended: float
    intended_share: float
    effective: Estimate
    share: Estimate
    variance_share: Estimate
    per_unit: Estimate
    dead_in_live: Estimate
    mean: float
    absent: float
    constant: float
    best: float

    @property
    def met(self) -> bool:
        """Whether nearly all rollouts have the best of it, so that little is left to learn from it."""
        return self.best > MET and math.isnan(self.constant)

    @property
    def muted(self) -> bool:
        """Whether it weighs less than MUTED × what was asked for, with all of its interval, though it varies and is not
        met."""
        high = self.share.interval()[1]
        return self.intended != 0 and math.isnan(self.constant) and high < MUTED * self.intended_share and not self.met

    @property
    def dead(self) -> bool:
        """Whether it has a weight and the same value on every rollout that it judged."""
        return self.intended != 0 and not math.isnan(self.constant)


@dataclass(frozen=True)
class _Collisions:
    """Pairs of rollouts of a group with different rewards: how many, the share with one advantage, examples.

    examples: the two tuples of rewards and how often they met, the most frequent first.
    """

    pairs: int
    share: Estimate
    examples: tuple[tuple[tuple[float, ...], tuple[float, ...], int], ...] = ()


@dataclass(frozen=True)
class RewardWeights:
    """What all components weigh.

    correlations: of two components within groups. groups, live: how many. residual: mean over live groups of
    |Σ A|/Σ|A|, 0 where groups sum to 0. rescaling (S,): what the whitening of each batch multiplied all weights by;
    ones without one.
    """

    components: tuple[ComponentWeight, ...]
    correlations: tuple[tuple[str, str, Estimate], ...]
    collisions: _Collisions
    groups: int
    live: int
    residual: float
    rescaling: Floats


def measure(given: Components, weights: Sequence[float] | Floats, how: Aggregation, prompts: Ints) -> RewardWeights:
    """What the components weigh; prompts (M,): the prompt of each group, which the jackknife leaves out."""
    scale, done = checked_weights(weights, given.names), combine(given, weights, how)
    _, unit = np.unique(prompts, return_inverse=True)
    live = _live(done, given)
    count = int(unit.max(initial=-1)) + 1

    def summed(values: Floats) -> Floats:
        return sums(values, unit, count)

    alive = summed(live.astype(np.float64))
    weight, dead = (summed(np.where(live[:, None], each, 0.0)) for each in (done.effective, done.deviations == 0))
    total, squared = done.contributions.sum(1), done.deviations**2
    units, squares = summed(done.coefficients * squared), summed(squared)
    products = summed(sums(done.contributions * total[:, None], given.group, len(given.batch)))
    intended = np.abs(scale) / np.abs(scale).sum()
    components = tuple(
        ComponentWeight(
            name,
            float(scale[j]),
            float(intended[j]),
            _ratio(weight[:, j], alive),
            _share_of_sizes(weight, j),
            _ratio(products[:, j], products.sum(1)),
            _ratio(units[:, j], squares[:, j]),
            _ratio(dead[:, j], alive),
            *_described(given.rewards[:, j], scale[j] < 0),
        )
        for j, name in enumerate(given.names)
    )
    return RewardWeights(
        components, _correlations(given, unit, count), _collisions(given, done, scale, prompts), len(given.batch),
        int(live.sum()), _residual(done, given, live), done.rescaling,
    )  # fmt: skip


def _live(done: Combined, components: Components) -> np.ndarray:
    """Which groups (M,) have an advantage."""
    sizes = sums(np.abs(done.contributions.sum(1)), components.group, len(components.batch))
    parts = sums(np.abs(done.contributions).sum(1), components.group, len(components.batch))
    live: np.ndarray = sizes > NEAR * np.maximum(parts, 1e-300)
    return live


def _ratio(numerator: Floats, denominator: Floats) -> Estimate:
    """Σ numerator / Σ denominator over units (C,), with its jackknife error; NaN where the latter is 0."""
    whole = denominator.sum()
    if not whole:
        return Estimate(math.nan, math.nan, 0, "no group has a spread")
    rest = whole - denominator
    without_each = np.divide(
        numerator.sum() - numerator, rest, out=np.full(len(rest), np.nan), where=np.abs(rest) > 1e-12 * whole
    )
    return resampling.estimate(float(numerator.sum() / whole), without_each)


def _share_of_sizes(weight: Floats, j: int) -> Estimate:
    """|w_j| / Σ |w| of the summed weights (C, K)."""
    whole = weight.sum(0)
    if not np.abs(whole).sum():
        return Estimate(math.nan, math.nan, 0, "no group has an advantage")
    remainder = np.abs(whole - weight)
    size = remainder.sum(1)
    shares = np.divide(remainder[:, j], size, out=np.full(len(size), np.nan), where=size > 0)
    return resampling.estimate(float(np.abs(whole[j]) / np.abs(whole).sum()), shares)


def _described(rewards: Floats, penalty: bool) -> tuple[float, float, float, float]:
    """Mean of the rewards that are present, share of those that are absent, the only value, else NaN, and the share of
    those present that are the best, the lowest of a penalty."""
    finite = rewards[~np.isnan(rewards)]
    if not len(finite):
        return math.nan, 1.0, math.nan, math.nan
    only = float(finite[0]) if finite.min() == finite.max() else math.nan
    best = finite.min() if penalty else finite.max()
    return float(finite.mean()), float(np.isnan(rewards).mean()), only, float((finite == best).mean())


def _correlations(components: Components, unit: Ints, count: int) -> tuple[tuple[str, str, Estimate], ...]:
    groups = len(components.batch)
    correlations = []
    for j, first in enumerate(components.names):
        for k in range(j + 1, len(components.names)):
            both = ~np.isnan(components.rewards[:, [j, k]]).any(1)
            pair, group = components.rewards[both][:, [j, k]], components.group[both]
            n = np.maximum(np.bincount(group, minlength=groups), 1)
            less = pair - (sums(pair, group, groups) / n[:, None])[group]
            moments = np.stack([less[:, 0] ** 2, less[:, 1] ** 2, less[:, 0] * less[:, 1]], 1)
            of_unit = sums(sums(moments, group, groups), unit, count)
            correlations.append((first, components.names[k], _correlation(of_unit)))
    return tuple(correlations)


def _correlation(moments: Floats) -> Estimate:
    """Correlation of summed moments (C, 3): squares of both and their product."""
    whole = moments.sum(0)
    if min(whole[:2]) <= 1e-18:
        return Estimate(math.nan, math.nan, 0, "one of the two is constant within every group")
    remainder = whole - moments
    size = np.sqrt(np.maximum(remainder[:, 0], 0.0) * np.maximum(remainder[:, 1], 0.0))
    values = np.divide(remainder[:, 2], size, out=np.full(len(size), np.nan), where=size > 1e-18)
    return resampling.estimate(float(whole[2] / math.sqrt(whole[0] * whole[1])), values)


def _collisions(components: Components, done: Combined, weights: Floats, prompts: Ints) -> _Collisions:
    """Pairs of rollouts of one group whose rewards differ in a component with a weight, and whose advantages do not."""
    used = np.flatnonzero(weights)
    order = np.argsort(components.group, kind="stable")
    bounds = np.searchsorted(components.group[order], np.arange(len(components.batch) + 1))
    advantage = done.contributions.sum(1)
    met, differ, same = Counter[tuple[tuple[float, ...], tuple[float, ...]]](), *np.zeros((2, len(components.batch)))
    for g, (start, end) in enumerate(pairwise(bounds.tolist())):
        rows = order[start:end]
        tuples, which, times = np.unique(
            components.rewards[np.ix_(rows, used)], axis=0, return_inverse=True, return_counts=True
        )
        if len(tuples) < 2:
            continue
        of_tuple = np.zeros(len(tuples))
        of_tuple[which.reshape(-1)] = advantage[rows]
        pairs = np.triu(np.outer(times, times), 1)
        equal = np.abs(of_tuple[:, None] - of_tuple) <= NEAR * max(np.abs(of_tuple).max(), 1e-12)
        differ[g], same[g] = pairs.sum(), (pairs * equal).sum()
        for a, b in zip(*np.nonzero(pairs * equal), strict=True):
            met[tuple(tuples[a].tolist()), tuple(tuples[b].tolist())] += int(pairs[a, b])
    _, unit = np.unique(prompts, return_inverse=True)
    count = int(unit.max(initial=-1)) + 1
    share = _ratio(sums(same, unit, count), sums(differ, unit, count))
    return _Collisions(int(differ.sum()), share, tuple((*pair, n) for pair, n in met.most_common(3)))


def _residual(done: Combined, components: Components, live: np.ndarray) -> float:
    """Mean over live groups of |Σ A|/Σ|A|; NaN without one."""
    groups = len(components.batch)
    total, sizes = (sums(each, components.group, groups)[live] for each in (done.advantages, np.abs(done.advantages)))
    return float((np.abs(total) / sizes).mean()) if live.any() else math.nan


def constant_shares(components: Components, size: int) -> tuple[list[float], float]:
    """Shares of groups of `size` in which each reward is constant, and in which all are: one is not all.

    The means over all subsets of the groups, which are the expected shares without bias; groups with fewer rollouts
    and rewards that are absent are left out. NaN where no group is left.
    """
    order = np.argsort(components.group, kind="stable")
    bounds = np.searchsorted(components.group[order], np.arange(len(components.batch) + 1))
    parts = len(components.names)
    total, count = np.zeros(parts + 1), np.zeros(parts + 1)
    for start, end in pairwise(bounds.tolist()):
        rows = components.rewards[order[start:end]]
        columns = [rows[:, [j]] for j in range(parts)] + [rows]
        for j, column in enumerate(columns):
            complete = column[~np.isnan(column).any(1)]
            if len(complete) >= size:
                _, times = np.unique(complete, axis=0, return_counts=True)
                total[j] += sum(math.comb(int(n), size) for n in times) / math.comb(len(complete), size)
                count[j] += 1
    shares = np.divide(total, count, out=np.full(parts + 1, np.nan), where=count > 0)
    return shares[:-1].tolist(), float(shares[-1])
