"""How many groups should be dead: p^G + (1 − p)^G, averaged over prompts, from groups of G rollouts.

A group of a prompt that is solved with probability p is dead (all right or all wrong) with
probability q(p) = p^G + (1 − p)^G. Putting K/G for p, K successes of G, overestimates its average:
q is convex, and K = 0 and K = G give exactly 1. The one unbiased estimate from the group itself is
whether it is dead, which predicts nothing. So the prediction takes from each group only what pairs
of its rollouts say, the unbiased

    E p  ← K/G        E p² ← K(K−1) / (G(G−1))

and assumes that p varies over prompts as a Beta distribution with these two moments:
E p^G = Π_{j<G} (a + j)/(a + b + j). It uses neither K = 0 nor K = G specially, it works for any
other group size, and where the observed share lies beside it, prompts are not spread like a Beta.
Rollouts of a group that copy each other look like prompts that lie further apart: groups alone
cannot tell these two. Standard errors: jackknife over groups. All of this is ours.

For group sizes g ≤ G no assumption is needed: [C(K, g) + C(G−K, g)] / C(G, g) is unbiased.

Conventions: all take the histogram `counts` (G + 1,) of K over groups. Degenerate: for G = 2 pairs
are the whole group and prediction = observation; spread below 0 or above p(1 − p), which the
unbiased moments can give, is cut there: all prompts alike, or each always or never solved.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from grposcope.records import Estimate

Counts = NDArray[np.int64]

ALIKE = 1e12
"""a + b of a Beta distribution beyond which prompts are all alike."""


def observed(counts: Counts) -> Estimate:
    """Share of groups that were dead; binomial standard error."""
    total = int(counts.sum())
    if not total:
        return Estimate(math.nan, math.nan, 0, "no groups")
    share = float(counts[0] + counts[-1]) / total
    return Estimate(share, math.sqrt(share * (1 - share) / total), total)


def predicted(counts: Counts, size: int | None = None) -> Estimate:
    """Expected share of dead groups of `size` rollouts (G if not given), p spread over prompts as a Beta."""
    group = len(counts) - 1
    return _jackknife(lambda c: _beta(c, size or group), counts, 2)


def alike(counts: Counts) -> Estimate:
    """The share if every prompt were solved with the same, average probability; the least there can be."""
    group = len(counts) - 1

    def share(c: NDArray[np.float64]) -> NDArray[np.float64]:
        p = c @ np.arange(group + 1) / (group * c.sum(-1))
        return p**group + (1 - p) ** group

    return _jackknife(share, counts, 1)


def subsets(counts: Counts, size: int) -> Estimate:
    """Share of dead groups had each only `size` ≤ G rollouts: unbiased, whatever the prompts."""
    group = len(counts) - 1
    ways = [(math.comb(k, size) + math.comb(group - k, size)) / math.comb(group, size) for k in range(group + 1)]
    total, weights = int(counts.sum()), counts / counts.sum()
    mean = float(weights @ ways)
    spread = float(weights @ (np.array(ways) - mean) ** 2)
    return Estimate(mean, math.sqrt(spread / max(total - 1, 1)), total)


def plugged_in(counts: Counts) -> float:
    """The naive average of (K/G)^G + (1 − K/G)^G, too large on average; shown for comparison only."""
    share = np.arange(len(counts)) / (len(counts) - 1)
    group = len(counts) - 1
    return float(counts @ (share**group + (1 - share) ** group) / counts.sum())


def _beta(counts: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """E[p^size + (1 − p)^size] for histograms (..., G + 1)."""
    group = counts.shape[-1] - 1
    k, total = np.arange(group + 1), counts.sum(-1)
    mean = counts @ (k / group) / total
    square = counts @ (k * (k - 1) / (group * (group - 1))) / total
    return beta_dead(mean, square, size)


def beta_dead(mean: NDArray[np.float64], square: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """E[p^size + (1 − p)^size] for the Beta distribution with these E p and E p², all of one shape."""
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = (mean - square) / np.clip(square - mean**2, 0, None)  # a + b, from E p² = E p (a + 1)/(a + b + 1)
    weight = np.nan_to_num(np.clip(weight, 0, ALIKE), nan=ALIKE)
    right, wrong = mean.copy(), 1 - mean
    for j in range(1, size):
        right *= (weight * mean + j) / (weight + j)
        wrong *= (weight * (1 - mean) + j) / (weight + j)
    return right + wrong


def _jackknife(statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]], counts: Counts, least: int) -> Estimate:
    """statistic(counts) with its delete-one-group standard error; groups of equal K count together."""
    total = int(counts.sum())
    if len(counts) < 3:
        return Estimate(math.nan, math.nan, total, "a group of one rollout is always dead")
    if total < least + 1:
        return Estimate(math.nan, math.nan, total, "too few groups")
    whole = float(statistic(counts.astype(np.float64)))
    present = np.flatnonzero(counts)
    without = statistic(counts - np.eye(len(counts))[present])
    weights = counts[present]
    centre = float(weights @ without) / total
    return Estimate(whole, math.sqrt((total - 1) / total * float(weights @ (without - centre) ** 2)), total)
