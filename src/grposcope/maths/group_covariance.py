"""Covariance of a quantity with the reward inside groups: where the update of a group draws it.

For rollouts of a group, Σ (x − x̄)(r − r̄)/(G − 1) is an unbiased estimate of Cov(x, r) for its prompt. Its mean over
groups is what a leave-one-out update gives to x to first order, if x were a linear feature of the policy: above 0, the
policy is drawn to more of it. The standard error is that of the mean over groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate

Floats = NDArray[np.float64]


def covariance(
    values: Sequence[float] | Floats, rewards: Sequence[float] | Floats, group: Sequence[object]
) -> Estimate:
    """Mean over groups of two or more rollouts of the covariance of values (n,) and rewards (n,); group (n,): ids.

    Rollouts with a value or reward that is not finite are left out. NaN, with a flag, without a group of two.
    """
    x, r = np.asarray(values, np.float64), np.asarray(rewards, np.float64)
    members: dict[object, list[int]] = {}
    for index in np.flatnonzero(np.isfinite(x) & np.isfinite(r)).tolist():
        members.setdefault(group[index], []).append(index)
    covariances = [
        float((x[places] - x[places].mean()) @ (r[places] - r[places].mean()) / (len(places) - 1))
        for places in members.values()
        if len(places) > 1
    ]
    if not covariances:
        return Estimate(float("nan"), float("nan"), 0, "no group of two rollouts")
    return Estimate.mean(covariances)
