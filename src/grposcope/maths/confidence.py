"""Whether a probe can say which group size is best, in which interval, and how many prompts it would take.

**Fieller's interval.** With a cost c_p per prompt and c_r per rollout the error for a budget falls with G where

    L(G) = c_r V_p (G−1)² − c_p (Σ₁ − Δ)(1 − 1/G)² − (c_p + c_r) Δ

is negative and rises where it is positive, so that G is the best size if and only if L(G) = 0. L is linear in the
moments, so it is a mean over prompts, of their jackknife pseudo-values. The interval holds every G at which this mean
is not told from 0. There is no ratio and no root in it: it has no upper end where V_p is not told apart from 0.

**Skewness.** Few prompts with large gradients make V_p, so a mean without them comes with a small standard error as
well, and Student's t is skewed. Hall's transformation takes that out: with T = mean/se, a = skewness/√n,

    H = T + a T²/3 + a² T³/27 + a/6,  which grows with T, is compared with the quantile of t

**The prompt that was not drawn.** Skewness can be seen only where the tail was drawn. So against the lower end of the
interval, which an unseen large gradient would move, one prompt is added that lies UNSEEN times as far out as the
farthest: the mean of a Pareto tail beyond it, α/(α−1), at α = 1.5, where the mean still exists and the variance does
not any more. With P prompts of a light tail that costs little: its weight is 1/(P+1).

**Informative groups.** ‖g(x)‖², and so V_p, is measured by pairs of rollouts with different rewards that have no
rollout in common. A group with one success has none: its estimate of ‖g‖² is 0 by algebra, with a standard error
of 0. So t is taken for as many degrees of freedom as there are groups with at least two rollouts on either side, less
one, and with fewer than LEAST_INFORMATIVE of them nothing is said. All groups enter the estimates.

Method of this project, after Fieller (1954) and Hall (1992); coverage is in docs/group-size.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

UNSEEN = 3.0
"""How far out the prompt lies that the lower end allows for, in units of the farthest that was drawn."""

LEAST_INFORMATIVE = 10
"""Informative groups from which a best group size is named."""

FARTHEST = 1024.0
"""Upper end of the interval from which it counts as open."""

POWER = 0.84
"""Standard errors that a moment must lie beyond the limit, to be found in four probes of five."""

MOST = 16
"""Largest factor by which the number of prompts is said to have to grow."""


def quantile(informative: int) -> float:
    """97.5 % quantile of Student's t for this many informative groups, less one degree of freedom."""
    from scipy.special import stdtrit  # takes longer to load than everything else here

    return float(stdtrit(max(informative - 1, 1), 0.975))


def pseudo_values(pooled: NDArray, left_out: NDArray) -> NDArray:
    """Jackknife pseudo-values (…, P), one per prompt, of a statistic (…, 1) and of its values without each prompt."""
    prompts = left_out.shape[-1]
    return np.asarray(prompts * pooled - (prompts - 1) * left_out)


def sides(contributions: NDArray) -> tuple[NDArray, NDArray]:
    """Evidence on the sign of means over prompts, contributions (k, P): two arrays (k,) on the scale of Student's t.

    The first, where it is far below 0, says that the mean is negative, allowing for a prompt that was not drawn; the
    second, where it is far above 0, that it is positive.
    """
    farthest = contributions.max(-1, keepdims=True)
    with_unseen = np.concatenate([contributions, UNSEEN * np.maximum(farthest, 0.0)], -1)
    return _without_skewness(with_unseen), _without_skewness(contributions)


def _without_skewness(contributions: NDArray) -> NDArray:
    """Hall's transformation of the t statistics of means over the last axis; 0 where nothing varies."""
    n, mean = contributions.shape[-1], contributions.mean(-1)
    deviations = contributions - mean[..., None]
    spread = np.sqrt((deviations**2).mean(-1))
    scale = np.where(spread > 0, spread, 1.0)
    t = math.sqrt(n - 1) * mean / scale
    a = (deviations**3).mean(-1) / scale**3 / math.sqrt(n)
    return np.where(spread > 0, t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6, 0.0)
