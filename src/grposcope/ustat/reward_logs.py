"""What reward logs alone say about the group size, without gradients.

Said without a model, for every G up to the logged group: the chance that a group of G is dead (all rewards
equal), as the share of the subsets of G of each group that are, Σ_v C(n_v, G)/C(n, G), which is unbiased;
and from it the live groups that a rollout buys, (1 − dead)/G. For binary rewards dead is E[p^G + (1−p)^G].

Said with a model, for larger G: a beta distribution of success rates with the logged mean and E p²
(both unbiased), flagged. Not said: Σ₁, Δ, V_p, so no error and no best G: those need the sizes and
directions of gradients, which no reward shows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grposcope.errors import UserError
from grposcope.records import Estimate
from grposcope.ustat import resampling
from grposcope.ustat.dead_groups import beta_dead
from grposcope.ustat.subsets import log_choose

EXTRAPOLATED = "extrapolated: success rates taken as beta-distributed"


def dead_fraction(rewards: NDArray, group: int) -> Estimate:
    """Chance that a group of `group` has all rewards equal, from logged groups (P, n), NaN for no rollout."""
    if group < 2:
        raise UserError(f"a group of {group} has nothing to compare; use 2 or more")
    rewards = np.asarray(rewards, float)
    sizes = (~np.isnan(rewards)).sum(-1)
    if not len(sizes) or sizes.max() < 2:
        raise UserError("no logged group has two rewards; nothing can be said of group sizes")
    if group <= sizes.min():
        shares = _dead_subsets(rewards, sizes, group)
        return resampling.estimate(float(shares.mean()), resampling.means_left_out(shares))
    values = np.unique(rewards[~np.isnan(rewards)])
    if len(values) > 2:
        reason = f"groups of {sizes.min()} were logged, and rewards have more than two values"
        return Estimate(float("nan"), float("nan"), len(sizes), reason)
    if sizes.min() < 2:
        return Estimate(float("nan"), float("nan"), len(sizes), "some logged groups have one reward")
    if len(values) < 2:
        reason = "every logged reward is the same: nothing is known of larger groups"
        return Estimate(float("nan"), float("nan"), len(sizes), reason)
    wins = (rewards == values[1]).sum(-1)
    rate, square = wins / sizes, wins * (wins - 1) / (sizes * (sizes - 1))
    value = beta_dead(rate.mean(keepdims=True), square.mean(keepdims=True), group)
    left_out = beta_dead(resampling.means_left_out(rate), resampling.means_left_out(square), group)
    return resampling.estimate(float(value[0]), left_out, EXTRAPOLATED)


def live_per_rollout(rewards: NDArray, group: int) -> Estimate:
    """Groups with a gradient that one rollout buys, (1 − dead)/G."""
    dead = dead_fraction(rewards, group)
    return Estimate((1 - dead.value) / group, dead.se / group, dead.n, dead.flag)


def resampling_cost(rewards: NDArray, group: int) -> Estimate:
    """Rollouts drawn per rollout kept when dead groups are replaced (DAPO), 1/(1 − dead); infinite if all are dead."""
    dead = dead_fraction(rewards, group)
    if not dead.value < 1:
        value = float("nan") if np.isnan(dead.value) else float("inf")
        return Estimate(value, float("nan"), dead.n, dead.flag or "every group is dead")
    return Estimate(1 / (1 - dead.value), dead.se / (1 - dead.value) ** 2, dead.n, dead.flag)


def _dead_subsets(rewards: NDArray, sizes: NDArray, group: int) -> NDArray:
    """Share of the subsets of `group` of each prompt's rollouts whose rewards are all equal, (P,)."""

    shares = np.zeros(len(sizes))
    for value in np.unique(rewards[~np.isnan(rewards)]):
        shares += np.exp(log_choose((rewards == value).sum(-1), group) - log_choose(sizes, group))
    return shares
