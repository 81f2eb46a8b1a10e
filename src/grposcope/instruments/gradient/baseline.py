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

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import NOT_MEASURED, Estimate
from grposcope.maths import resampling
from grposcope.maths.moments import centered_second_moment, covariance, squared_gradient

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


def _verdict(gap: Estimate) -> str:
    """Whether b* − V, the estimate `gap`, differs from 0 at 1.96 standard errors, in words."""
    if not (math.isfinite(gap.value) and gap.se > 0):
        return f"cannot tell: {gap.flag or 'no standard error'}"
    if abs(gap.value) <= 1.96 * gap.se:
        return "the group mean does not differ measurably from the best constant baseline"
    side = "above" if gap.value > 0 else "below"
    return f"the best constant baseline lies {side} the group mean"


def _of_prompt(rewards: Array, gram: Array) -> BestBaseline:
    """The baseline of one prompt from its rewards (G,) and the inner products of its scores (G, G)."""
    size = len(rewards)
    if size < 4:
        return _unknown(size, f"{size} rollouts; at least 4 are needed")
    if np.ptp(rewards) == 0:
        return _unknown(size, "all rewards are equal")

    def jackknife(statistic: Callable[[Array, Array], float]) -> Estimate:
        norms = np.diag(gram)
        left_out = np.array([statistic(np.delete(rewards, i), np.delete(norms, i)) for i in range(size)])
        return Estimate(statistic(rewards, norms), resampling.standard_error(left_out), size)

    gap = jackknife(lambda r, k: covariance(r, k) / float(k.mean()))
    optimal = jackknife(lambda r, k: float(r @ k) / float(k.sum()))
    rest = _variance_at_best(rewards, gram, gap)
    flag = "" if rest > 0 else "the estimated variance is not positive: too few rollouts"
    scale = float(np.diag(gram).mean()) / rest if rest > 0 else math.nan

    def excess(distance: Estimate) -> Estimate:
        """(b − b*)² E[k] over the variance left, from an estimate of b − b*."""
        error = 2 * abs(distance.value) * distance.se * scale
        return Estimate((distance.value**2 - distance.se**2) * scale, error, size, flag)

    mean = Estimate.mean(list(map(float, rewards)))
    wasted = excess(gap)
    saving = Estimate(wasted.value / (1 + wasted.value), wasted.se / (1 + wasted.value) ** 2, size, flag)
    return BestBaseline(mean, optimal, gap, wasted, excess(optimal), _verdict(gap), saving)


def pooled(rewards: Array, gram: Array) -> tuple[BestBaseline, tuple[BestBaseline, ...]]:
    """The average over prompts, with standard errors over prompts, and the baseline of each prompt.

    rewards (P, G); gram (B, B) of all rollouts, prompt-major. Prompts weigh by E[k], as they do in the
    variance of a batch: the average is a ratio of sums, with jackknife errors over prompts. Give all prompts
    drawn, those with equal rewards too: an average over the others alone describes mixed groups only.
    """
    prompts, group = rewards.shape
    blocks = [gram[p * group : (p + 1) * group, p * group : (p + 1) * group] for p in range(prompts)]
    each = tuple(_of_prompt(r, k) for r, k in zip(rewards, blocks, strict=True))
    mixed = sum(math.isfinite(covariances.covariance.value) for covariances in each)
    if mixed < 2:
        reason = f"{mixed} of {prompts} groups have unequal rewards and at least 4 rollouts; 2 are needed"
        return _unknown(mixed, reason), each
    norms = np.array([np.diag(block).mean() for block in blocks])
    gaps = [_known_or(0.0, baseline.covariance) for baseline in each]
    bests = [_known_or(r[0], baseline.optimal) for r, baseline in zip(rewards, each, strict=True)]
    rest = np.array([_variance_at_best(r, k, gap) for r, k, gap in zip(rewards, blocks, gaps, strict=True)])
    # squares less their sampling variance, so that noise is not counted as excess
    square_gap, square_best = (np.array([e.value**2 - e.se**2 for e in kind]) for kind in (gaps, bests))
    gap = _ratio(np.array([e.value for e in gaps]) * norms, norms)
    return BestBaseline(
        mean=_ratio(rewards.mean(1) * norms, norms),
        optimal=_ratio(np.array([e.value for e in bests]) * norms, norms),
        covariance=gap,
        excess_mean=_ratio(square_gap * norms, rest),
        excess_none=_ratio(square_best * norms, rest),
        verdict=_verdict(gap),
        saving=_ratio(square_gap * norms, rest + square_gap * norms),
    ), each


def _variance_at_best(rewards: Array, gram: Array, gap: Estimate) -> float:
    """tr Var((r − b*) s) = E[(r − V)² k] − Cov²/E[k] − ‖g‖²; an estimate, which can fall below 0."""
    norms = np.diag(gram)
    excess = (gap.value**2 - gap.se**2) * float(norms.mean())
    return centered_second_moment(rewards, norms) - excess - squared_gradient(rewards, gram)


def _known_or(value: float, estimate: Estimate) -> Estimate:
    """The estimate, or the exact `value` that a prompt with equal rewards adds to an average."""
    return estimate if math.isfinite(estimate.value) else Estimate(float(value), 0.0, estimate.n)


def _ratio(over: Array, under: Array) -> Estimate:
    """Σ over / Σ under with its jackknife standard error over prompts."""
    n = len(over)
    left_out = (over.sum() - over) / (under.sum() - under)
    flag = "" if n >= 5 and under.sum() > 0 else f"only {n} prompts" if under.sum() > 0 else "variance not positive"
    return Estimate(float(over.sum() / under.sum()), resampling.standard_error(left_out), n, flag)


def _unknown(n: int, reason: str) -> BestBaseline:
    estimate = Estimate(math.nan, math.nan, n, reason)
    return BestBaseline(estimate, estimate, estimate, estimate, estimate, _verdict(estimate), estimate)
