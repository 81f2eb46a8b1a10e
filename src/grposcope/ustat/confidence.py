"""Whether a probe can say which group size is best, in which interval, and how many prompts it would take.

**Fieller's interval.** With a cost c_p per prompt and c_r per rollout the error for a budget falls with G where

    L(G) = c_r V_p (G−1)² − c_p (Σ₁ − Δ)(1 − 1/G)² − (c_p + c_r) Δ

is negative and rises where it is positive, so that G is the best size if and only if L(G) = 0. L is linear in the
moments: its standard error comes from their jackknife covariance over prompts. The interval holds every G for which
|L̂(G)| ≤ t se(L̂(G)). There is no ratio and no root in it: it has no upper end where V_p is not told apart from 0, and
holds its level where that of a percentile bootstrap of 1 + √(Δ/V_p) falls short.

**Informative groups.** ‖g(x)‖², and so V_p, is measured by pairs of rollouts with different rewards that have no
rollout in common. A group with one success has none: its estimate of ‖g‖² is 0 by algebra, with a standard error
of 0. So t is taken for as many degrees of freedom as there are groups with at least two rollouts on either side, less
one, and with fewer than LEAST_INFORMATIVE of them nothing is said. All groups enter the estimates.

Method of this project, after Fieller (1954) for the interval; coverage is in docs/ustat.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from grposcope.ustat.moments import Moments

LEAST_INFORMATIVE = 10
"""Informative groups from which a best group size is named."""

FARTHEST = 1024.0
"""Upper end of the interval from which it counts as open."""

POWER = 0.84
"""Standard errors that a moment must lie beyond the limit, to be found in four probes of five."""

MOST = 16
"""Largest factor by which the number of prompts is said to have to grow."""

_GRID = 1 + np.geomspace(0.01, FARTHEST - 1, 400)


def quantile(informative: int) -> float:
    """97.5 % quantile of Student's t for this many informative groups, less one degree of freedom."""
    from scipy.special import stdtrit  # takes longer to load than everything else here

    return float(stdtrit(max(informative - 1, 1), 0.975))


def interval(moments: Moments, prompt_cost: float = 0.0, rollout_cost: float = 1.0) -> tuple[float, float]:
    """95 % interval of the real-valued best G, from 1 to FARTHEST; inf for an upper end beyond it.

    NaN for both with fewer than LEAST_INFORMATIVE informative groups.
    """
    informative = int(moments.informative.sum())
    if informative < LEAST_INFORMATIVE:
        return math.nan, math.nan
    names = ("prompt_variance", "sigma1", "delta")
    value = np.array([getattr(moments.pooled, name)[0] for name in names])
    left_out = np.stack([getattr(moments.jackknife, name) for name in names])
    apart = left_out - left_out.mean(-1, keepdims=True)
    covariance = (left_out.shape[-1] - 1) / left_out.shape[-1] * apart @ apart.T
    shrunk = prompt_cost * (1 - 1 / _GRID) ** 2
    factors = np.stack([rollout_cost * (_GRID - 1) ** 2, -shrunk, shrunk - prompt_cost - rollout_cost])
    error = np.sqrt(np.einsum("ig,ij,jg->g", factors, covariance, factors))
    contrast, reach = value @ factors, quantile(informative) * error
    return _ends(contrast, reach)


def _ends(contrast: NDArray, reach: NDArray) -> tuple[float, float]:
    """Ends of the set of G where |contrast| ≤ reach on the grid, interpolated on the scale of ln(G − 1).

    There is no upper end unless the contrast is beyond its reach at the last G, and above 0.
    """
    scale, room = np.log(_GRID - 1), reach - np.abs(contrast)
    inside = np.flatnonzero(room >= 0)
    if not len(inside):  # on one side of 0 everywhere, or narrower than the grid
        inside = np.array([min(int((contrast < 0).sum()), len(room) - 1)])
    first, last = int(inside[0]), int(inside[-1])

    def crossing(outside: int, within: int) -> float:
        share = max(room[within], 0.0) / (max(room[within], 0.0) - room[outside])
        return float(1 + np.exp(scale[within] + share * (scale[outside] - scale[within])))

    low = crossing(first - 1, first) if first > 0 else 1.0
    ends = last < len(room) - 1 and contrast[-1] > reach[-1]
    return low, crossing(last + 1, last) if ends else math.inf


def more_prompts(moments: Moments) -> int:
    """How many further prompts like these would probably decide, at most MOST times as many in all.

    There must be LEAST_INFORMATIVE informative groups, and V_p must lie beyond its limit for an upper end to exist.
    """
    informative, prompts = int(moments.informative.sum()), moments.prompts
    for_groups = 1.25 * LEAST_INFORMATIVE / max(informative, 0.5)
    error, wanted = moments.prompt_variance.se, quantile(max(informative, LEAST_INFORMATIVE)) + POWER
    found = max(moments.prompt_variance.value / error, 0.0) if error > 0 else 0.0
    for_width = (wanted / found) ** 2 if found > 0 else MOST
    return math.ceil(prompts * (min(max(for_groups, for_width, 1.25), MOST) - 1))
