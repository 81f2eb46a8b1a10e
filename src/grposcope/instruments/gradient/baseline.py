"""Is the group mean the right baseline? An answer from rewards r and squared score norms k = ‖s‖².

Of all constants b per prompt, the estimate (r − b) s of the policy gradient has least variance at

    b* = E[r k] / E[k] = V + Cov(r, k)/E[k],      V = E r     (Weaver & Tao 2001; Greensmith et al. 2004)

and any other b costs (b − b*)² E[k] more. So the group mean is optimal iff Cov(r, k) = 0 and its excess
is Cov(r, k)²/E[k]; the excess of no baseline is b*² E[k]. Both are compared with the variance left at b*,
tr Var((r − b*) s) = E[(r − V)² k] − Cov²/E[k] − ‖g‖². That Cov(r, k) = 0 within every prompt is assumption A2 of
arXiv:2603.01162 ([U]); b* − V is its measure in units of reward, and Cov²/E[k] as a share of Σ₁ = E[(r − V)² k] − ‖g‖²
what a constant that knew b* would save.

Products of expectations are estimated from distinct rollouts, so they carry no bias: Cov² from pairs
of the jackknife would not be, hence Cov² − se². Standard errors: jackknife over the rollouts of a
prompt, over prompts when pooled. Of a single prompt, rewards that are all equal say nothing about Cov, nor
do fewer than four rollouts. In the average over prompts they count: their sample covariance is 0, and without
them Cov would be too large by 1/P(rewards differ).

The estimates of ‖g‖² and E[(r − V)² k] are those of `maths.moments` that assume E s = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import NOT_MEASURED, Estimate

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BestBaseline:
    """The best constant baseline b* against the group mean V, of one prompt or pooled.

    mean: V. optimal: b*. covariance: b* − V, in units of reward. excess_mean, excess_none: variance that the group
    mean and no baseline cost, as shares of the variance left at b*. saving: share of Σ₁, the variance per rollout at V,
    that b* would save; 0 under assumption A2 of [U]. verdict: a sentence.
    """

    mean: Estimate = NOT_MEASURED
    optimal: Estimate = NOT_MEASURED
    covariance: Estimate = NOT_MEASURED
    excess_mean: Estimate = NOT_MEASURED
    excess_none: Estimate = NOT_MEASURED
    verdict: str = "cannot tell: not measured"
    saving: Estimate = NOT_MEASURED
