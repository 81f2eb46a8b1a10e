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

from grposcope.maths.moments import Moments

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
    of_prompts = np.stack([pseudo_values(getattr(moments.pooled, n), getattr(moments.jackknife, n)) for n in names])
    shrunk = prompt_cost * (1 - 1 / _GRID) ** 2
    factors = np.stack([rollout_cost * (_GRID - 1) ** 2, -shrunk, shrunk - prompt_cost - rollout_cost])
    below, above = sides(factors.T @ of_prompts)
    return _ends(below, above, quantile(informative))


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


def mean_interval(contributions: NDArray) -> tuple[float, float]:
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


def _without_skewness(contributions: NDArray) -> NDArray:
    """Hall's transformation of the t statistics of means over the last axis; 0 where nothing varies."""
    n, mean = contributions.shape[-1], contributions.mean(-1)
    deviations = contributions - mean[..., None]
    spread = np.sqrt((deviations**2).mean(-1))
    scale = np.where(spread > 0, spread, 1.0)
    t = math.sqrt(n - 1) * mean / scale
    a = (deviations**3).mean(-1) / scale**3 / math.sqrt(n)
    return np.where(spread > 0, t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6, 0.0)


def _ends(below: NDArray, above: NDArray, reach: float) -> tuple[float, float]:
    """Ends of the set of G where below ≥ −reach and above ≤ reach on the grid, interpolated in ln(G − 1)."""
    scale, room = np.log(_GRID - 1), np.minimum(below, -above) + reach
    inside = np.flatnonzero(room >= 0)
    if not len(inside):  # on one side of 0 everywhere, or narrower than the grid
        inside = np.array([min(int((below < -reach).sum()), len(room) - 1)])
    first, last = int(inside[0]), int(inside[-1])

    def crossing(outside: int, within: int) -> float:
        share = max(room[within], 0.0) / (max(room[within], 0.0) - room[outside])
        return float(1 + np.exp(scale[within] + share * (scale[outside] - scale[within])))

    low = crossing(first - 1, first) if first > 0 else 1.0
    ends = last < len(room) - 1 and above[-1] > reach
    return low, crossing(last + 1, last) if ends else math.inf


def more_prompts(moments: Moments) -> int:
    """How many further prompts like these would probably decide, at most MOST times as many in all.

    There must be LEAST_INFORMATIVE informative groups, and V_p must lie beyond its limit for an upper end to exist.
    """
    informative, prompts = int(moments.informative.sum()), moments.prompts
    for_groups = 1.25 * LEAST_INFORMATIVE / max(informative, 0.5)
    error, wanted = moments.prompt_variance.se, quantile(max(informative, LEAST_INFORMATIVE)) + POWER
    variance = max(moments.prompt_variance.value / error, 0.0) if error > 0 else 0.0
    for_width = (wanted / variance) ** 2 if variance > 0 else MOST
    return math.ceil(prompts * (min(max(for_groups, for_width, 1.25), MOST) - 1))
