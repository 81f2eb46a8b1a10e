"""Best group size for standardized advantages (GRPO), on a scale that does not depend on how an estimator is scaled.

Recipes scale the gradient differently, and a step size undoes that. So group sizes are compared by noise over signal at
an equal number of rollouts, the squared error of the direction before a batch's size divides it:

    q(G) = G (E‖ĝ_G‖² / ‖E ĝ_G‖² − 1)

with c_p + c_r G for the factor G where prompts and rollouts have costs. For leave-one-out and centered advantages the
minimum of q is G* = 1 + √(Δ/V_p) again. For standardized advantages and two rewards both moments are averages over all
subsets of G of the rollouts of each prompt (`maths.moments`), unbiased for every G up to the probe's and unknown
beyond. With dead groups replaced by live ones (DAPO) a batch of as many rollouts drawn has

    q(G) = G (E‖ĝ_G‖² / ‖E ĝ_G‖² − 1/(1 − dead_G))

The interval holds every G next to which q is not told to fall on: with S = E‖ĝ‖² and M = ‖E ĝ‖² the difference
q(G+1) − q(G), multiplied by M(G) M(G+1) so that nothing is divided by a noisy signal, is told from 0 by its jackknife
pseudo-values as in `maths.confidence`, unseen prompts and skewness included. Method of this project; no publication.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate
from grposcope.instruments.group_size import planning
from grposcope.maths import confidence, resampling
from grposcope.maths.moments import Moments


@dataclass(frozen=True)
class RecipePlan:
    """Best G for standardized advantages among 2 to `largest`, the probe's group size.

    best: 0 where it cannot be told. interval: 95 %; infinite above where q may fall beyond `largest`. noise: q(G) by
    group size. losses: share by which the budget must grow at each of these sizes to reach the noise over signal of the
    best of them. reason: why nothing can be told, empty where something can.
    """

    best: int
    interval: tuple[float, float]
    largest: int
    noise: dict[int, float]
    losses: dict[int, Estimate]
    reason: str = ""

    @property
    def decided(self) -> bool:
        """Whether there is a best group size with an interval that ends within the probe's."""
        return self.best > 0

    @property
    def at_least(self) -> int:
        """The least G of an interval that has no end, where it rules out smaller ones; else 0."""
        low, high = self.interval
        return int(low) if high == math.inf and low > 2 else 0


def standardized(
    moments: Moments,
    replace_dead: bool = False,
    prompt_cost: float = 0.0,
    rollout_cost: float = 1.0,
    ddof: int = 1,
    eps: float = 1e-4,
) -> RecipePlan:
    """The plan for standardized advantages; ddof and eps are those of the group's standard deviation."""
    classes = moments.classes
    if classes is None or classes.directions is None:
        why = "rewards have more than two values" if classes is None else "the probe has no Gram matrix across prompts"
        return RecipePlan(0, (math.nan, math.nan), 0, {}, {}, why)
    if why := planning.not_independent(moments):
        return RecipePlan(0, (math.nan, math.nan), 0, {}, {}, why)
    largest = int(classes.sizes.min())
    informative = int(moments.informative.sum())
    if informative < confidence.LEAST_INFORMATIVE or largest < 4:
        return RecipePlan(0, (math.nan, math.nan), largest, {}, {}, "too few informative groups")
    weights = np.concatenate([resampling.point(moments.prompts), resampling.jackknife(moments.prompts)])
    sizes = np.arange(2, largest + 1)
    second, mean2 = np.empty((2, len(sizes), len(weights)))
    live = np.ones((len(sizes), len(weights)))
    for i, group in enumerate(sizes):
        second[i], mean2[i], _ = classes.pooled(int(group), weights, ddof, eps)
        if replace_dead:
            chances = classes.chances(int(group))
            live[i] = 1 - resampling.mean(chances[:, 0] + chances[:, -1], weights)
    noise = (prompt_cost + rollout_cost * sizes)[:, None] * (second - mean2 / live)  # q × mean2
    rises = noise[1:] * mean2[:-1] - noise[:-1] * mean2[1:]  # (q(G+1) − q(G)) × M(G) M(G+1)
    below, above = confidence.sides(confidence.pseudo_values(rises[:, :1], rises[:, 1:]))
    reach = confidence.quantile(informative)
    falling, rising = np.flatnonzero(below < -reach), np.flatnonzero(above > reach)
    low = float(sizes[falling[-1] + 1]) if len(falling) else 2.0
    high = float(sizes[rising[rising >= low - 2][0]]) if (rising >= low - 2).any() else math.inf
    q = _over(noise, mean2)
    found = math.isfinite(high) and bool(np.isfinite(q[:, 0]).all())
    within = (sizes >= low) & (sizes <= high)
    best = int(sizes[within][q[within, 0].argmin()]) if found else 0
    losses = {}
    if found:
        lost = q / q[best - 2] - 1
        losses = {int(g): resampling.estimate(float(row[0]), row[1:]) for g, row in zip(sizes, lost, strict=True)}
    return RecipePlan(best, (low, high), largest, dict(zip(sizes.tolist(), q[:, 0].tolist(), strict=True)), losses)


def _over(noise: NDArray, mean2: NDArray) -> NDArray:
    """noise/mean2, NaN where no signal was found."""
    return np.divide(noise, mean2, out=np.full(noise.shape, np.nan), where=mean2 > 0)
