"""Dead groups: groups whose rewards are all equal, so that every group-relative advantage and the gradient are 0.

How many were seen, how many chance alone explains, and how many there would be at another group size.

A group of a prompt that is solved with probability p is dead with probability q(p) = p^G + (1 − p)^G (`chance`).
Averaging q(K/G), K successes of G, over prompts overestimates E q: q is convex, and K = 0 and K = G give exactly 1.
Two estimates avoid this bias:

*Subsets.* For a size g ≤ n of n logged rollouts, the share of the subsets of g that are dead, Σ_v C(n_v, g)/C(n, g)
over the reward values v, is unbiased whatever the prompts and the rewards.

*Beta prediction.* For any size, and two-valued rewards: pairs of rollouts give without bias

    E p  ← K/n        E p² ← K(K−1) / (n(n−1))

and p is taken as Beta-distributed over prompts with these two moments: E p^G = Π_{j<G} (a + j)/(a + b + j). At the
logged size it is a test, too: an observed share away from it means that prompts are not spread like a Beta, or that
rollouts of a group copy each other; groups alone cannot tell these two. A spread of p below 0 or above p(1 − p),
which unbiased moments can give, is cut there: all prompts alike, or each always or never solved.

Standard errors are jackknifed over groups. Method of this project; no publication. Input is either `rewards` (P, n),
NaN where a group has no such rollout, or the histogram `counts` (G + 1,) of the successes K of equal groups.
`lab.objectives.advantages.dead` is the same mask in PyTorch, for the training step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.maths import resampling

Counts = NDArray[np.int64]

EXTRAPOLATED = "extrapolated: success rates taken as beta-distributed"
"""Flag of estimates for groups larger than the logged ones."""

ALIKE = 1e12
"""a + b of a Beta distribution beyond which all prompts count as equally hard."""


def chance(success: float, group: int) -> float:
    """Probability p^G + (1 − p)^G that a group of two-valued rewards is dead, for success probability p."""
    return success**group + (1 - success) ** group


# From rewards (P, n), NaN where a group has no such rollout


def _is_dead(rewards: ArrayLike) -> NDArray[np.bool_]:
    """Whether all rewards of a group are equal, (P,). Every group needs one rollout at least."""
    rewards = np.asarray(rewards, np.float64)
    return np.asarray(np.nanmax(rewards, -1) == np.nanmin(rewards, -1))


def is_dead_ragged(rewards: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`_is_dead` for groups stored one after the other: group i is rewards[offsets[i]:offsets[i + 1]]."""
    starts = offsets[:-1]
    return np.asarray(np.maximum.reduceat(rewards, starts) == np.minimum.reduceat(rewards, starts))


def share(rewards: ArrayLike) -> Estimate:
    """Observed share of dead groups with its standard error over groups, from their sample variance (ddof 1).

    NaN for the standard error of a single group, where `_observed` has the binomial one.
    """
    return Estimate.mean([float(dead) for dead in _is_dead(rewards)])


def chance_if_alike(rewards: ArrayLike) -> float:
    """`chance` at the overall success rate: the expected share if all prompts were equally hard, its least value.

    NaN unless every reward is 0 or 1.
    """
    rewards = np.asarray(rewards, np.float64)
    if not ((rewards == 0) | (rewards == 1)).all():
        return math.nan
    return chance(float(rewards.mean()), rewards.shape[-1])


def share_in_subsets(rewards: ArrayLike, group: int) -> Estimate:
    """Expected share of dead groups had `group` of the logged rollouts of each prompt been drawn; unbiased.

    NaN with a flag where some prompt has fewer than `group` rollouts.
    """
    rewards = np.asarray(rewards, np.float64)
    sizes = (~np.isnan(rewards)).sum(-1)
    if group > sizes.min():
        return Estimate(math.nan, math.nan, len(rewards), f"some groups have fewer than {group} rollouts")
    return Estimate.mean([float(dead) for dead in _dead_subsets(rewards, sizes, group)])


def expected(rewards: ArrayLike, group: int) -> Estimate:
    """Expected share of dead groups of `group` rollouts: `share_in_subsets` where possible, else the Beta prediction.

    Extrapolations carry the flag EXTRAPOLATED; NaN with the reason where there is no basis for one.
    Raises UserError for a group below 2 and where no logged group has two rewards.
    """
    if group < 2:
        raise UserError(f"a group of {group} has nothing to compare; use 2 or more")
    rewards = np.asarray(rewards, np.float64)
    sizes = (~np.isnan(rewards)).sum(-1)
    if not len(sizes) or sizes.max() < 2:
        raise UserError("no logged group has two rewards; nothing can be said of group sizes")
    if group <= sizes.min():
        shares = _dead_subsets(rewards, sizes, group)
        return resampling.estimate(float(shares.mean()), resampling.means_left_out(shares))
    values = np.unique(rewards[~np.isnan(rewards)])
    reason = ""
    if len(values) > 2:
        reason = f"groups of {sizes.min()} were logged, and rewards have more than two values"
    elif sizes.min() < 2:
        reason = "some logged groups have one reward"
    elif len(values) < 2:
        reason = "every logged reward is the same: nothing is known of larger groups"
    if reason:
        return Estimate(math.nan, math.nan, len(sizes), reason)
    successes = (rewards == values[1]).sum(-1)
    first, second = successes / sizes, successes * (successes - 1) / (sizes * (sizes - 1))
    value = _beta_chance(first.mean(keepdims=True), second.mean(keepdims=True), group)
    left_out = _beta_chance(resampling.means_left_out(first), resampling.means_left_out(second), group)
    return resampling.estimate(float(value[0]), left_out, EXTRAPOLATED)


def live_per_rollout(rewards: ArrayLike, group: int) -> Estimate:
    """Groups with a gradient that one rollout buys, (1 − dead)/G."""
    dead = expected(rewards, group)
    return Estimate((1 - dead.value) / group, dead.se / group, dead.n, dead.flag)


def _dead_subsets(rewards: NDArray[np.float64], sizes: NDArray[np.int64], group: int) -> NDArray[np.float64]:
    """Share of the subsets of `group` of each prompt's rollouts whose rewards are all equal, (P,)."""
    shares = np.zeros(len(sizes))
    for value in np.unique(rewards[~np.isnan(rewards)]):
        shares += np.exp(log_choose((rewards == value).sum(-1), group) - log_choose(sizes, group))
    return shares


def log_choose(n: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """log C(n, k) for whole n, k ≥ 0 that broadcast; −∞ where k > n."""
    n, k = np.broadcast_arrays(np.asarray(n), np.asarray(k))
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n.max(initial=0) + 1)))])
    of_k = np.minimum(k, n)
    return np.where(k <= n, factorial[n] - factorial[of_k] - factorial[n - of_k], -np.inf)


# From the histogram of successes (G + 1,) over groups of one size


def predicted(counts: Counts, size: int | None = None) -> Estimate:
    """Beta prediction of the share of dead groups of `size` rollouts, by default of the logged size.

    For G = 2 pairs are the whole group, so that prediction and observation coincide.
    """
    group = len(counts) - 1

    def statistic(histograms: NDArray[np.float64]) -> NDArray[np.float64]:
        k, total = np.arange(group + 1), histograms.sum(-1)
        first = histograms @ (k / group) / total
        second = histograms @ (k * (k - 1) / (group * (group - 1))) / total
        return _beta_chance(first, second, size or group)

    return _jackknifed(statistic, counts, least=3)


def alike(counts: Counts) -> Estimate:
    """Expected share if every prompt were solved with the same, average probability; the least there can be."""
    group = len(counts) - 1

    def statistic(histograms: NDArray[np.float64]) -> NDArray[np.float64]:
        p = histograms @ np.arange(group + 1) / (group * histograms.sum(-1))
        return p**group + (1 - p) ** group

    return _jackknifed(statistic, counts, least=2)


LARGE = 4096
"""Size of a group beyond which the product over its rollouts is taken by logarithms of gamma functions."""


def _beta_chance(first: NDArray[np.float64], second: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """E[p^size + (1 − p)^size] for Beta-distributed p with moments E p = `first`, E p² = `second`, all of one shape."""
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = (first - second) / np.clip(second - first**2, 0, None)  # a + b, from E p² = E p (a + 1)/(a + b + 1)
    weight = np.nan_to_num(np.clip(weight, 0, ALIKE), nan=ALIKE)
    all_right, all_wrong = first.copy(), 1 - first
    if size > LARGE:
        alone = gammaln(weight + size) - gammaln(weight + 1)
        for every, mean in ((all_right, first), (all_wrong, 1 - first)):
            every *= np.exp(gammaln(weight * mean + size) - gammaln(weight * mean + 1) - alone)
        return all_right + all_wrong
    for j in range(1, size):
        all_right *= (weight * first + j) / (weight + j)
        all_wrong *= (weight * (1 - first) + j) / (weight + j)
    return all_right + all_wrong


def _jackknifed(
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]], counts: Counts, least: int
) -> Estimate:
    """statistic(counts) with its delete-one-group standard error; NaN for fewer than `least` groups or G = 1."""
    total = int(counts.sum())
    if len(counts) < 3:
        return Estimate(math.nan, math.nan, total, "a group of one rollout is always dead")
    if total < least:
        return Estimate(math.nan, math.nan, total, "too few groups")
    value = float(statistic(counts.astype(np.float64)))
    present = np.flatnonzero(counts)
    left_out = statistic(counts - np.eye(len(counts))[present])  # groups of equal K give equal values
    return Estimate(value, resampling.standard_error(left_out, counts[present]), total)
