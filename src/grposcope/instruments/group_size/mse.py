"""Mean-squared error of a policy gradient from P prompts × G rollouts, for each way to choose the baseline.

With the averages over prompts of Σ₁, Δ and V_p of `moments`, and equalities throughout:

    leave-one-out   (1/P) [V_p + Σ₁/G + Δ/(G(G−1))]                   oracle   (1/P) [V_p + Σ₁/G]
    centered        ((G−1)/G)² × leave-one-out + ‖E g‖²/G²            (its target is E g too)
    any baseline b  (1/P) [V_p + (E (r−b)²‖s‖² − ‖g‖²)/G]:  b = 0 REINFORCE, b = V oracle,
                    b* = E r‖s‖²/E‖s‖² the best, saving Cov(r, ‖s‖²)²/E‖s‖²
    shrunk          b_i = c + λ (mean of the others − c):
                    (1/P) [V_p + (E (r−b̄)²‖s‖² − ‖g‖²)/G + λ²Δ/(G(G−1))],  b̄ = c + λ(V − c)
    standardized    (1/P) [E‖ĝ‖² − ‖E ĝ‖²] + ‖E ĝ − E g‖², see `maths.moments`

Prompts are independent draws; the target is E_x g(x). The rows of baselines use E s = 0, which holds for scores of
whole sampled completions; `Statistics.score2` shows where it does not. Leave-one-out and centered do not need it
(their Σ₁ is 4 ζ₁). λ = 0, c = 0 is REINFORCE, λ = 1 leave-one-out. The λ of least error is
λ* = E[(V−c) E(r−c)‖s‖²] / E[(V−c)² E‖s‖² + Δ/(G−1)], averages over prompts. Leave-one-out has less error than no
baseline iff G − 1 > Δ/(E r²‖s‖² − ‖g‖² − Σ₁), the denominator being V(2b* − V) E‖s‖².
Source: arXiv:2603.01162 for the U-statistic; the rest is a method of this project, no publication.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.maths import resampling
from grposcope.maths.moments import Moments, Statistics

Curve = Callable[[Statistics], NDArray]


@dataclass(frozen=True)
class _Budget:
    """Parts of the leave-one-out MSE: from drawing prompts, from an oracle's rollouts, and from not knowing V."""

    prompts: Estimate
    oracle: Estimate
    residual: Estimate
    total: Estimate


def second_moment(statistics: Statistics, group: int) -> NDArray:
    """E‖ĝ‖² of one leave-one-out group, from pairs of pairs with two, one and no common rollouts.

    A group of 2 needs `both` alone and a group of 3 also `one`, so these are known even where `none` is not.
    """
    _check(1, group)
    pairs = group * (group - 1)
    total = 2 / pairs * statistics.both
    if group > 2:
        total = total + 4 * (group - 2) / pairs * statistics.one
    if group > 3:
        total = total + (group - 2) * (group - 3) / pairs * statistics.none
    return total


def leave_one_out(moments: Moments, prompts: int, group: int) -> Estimate:
    """MSE of the leave-one-out gradient (RLOO), unbiased, around E g."""
    _check(prompts, group)
    return moments.estimate(lambda s: (second_moment(s, group) - s.mean2) / prompts, _why(moments, group))


def centered(moments: Moments, prompts: int, group: int) -> Estimate:
    """MSE of the mean-centred gradient (Dr. GRPO) around E g: less variance, a bias of E g / G."""
    _check(prompts, group)
    shrink = (group - 1) / group

    def error(s: Statistics) -> NDArray:
        return shrink**2 * (second_moment(s, group) - s.mean2) / prompts + s.mean2 / group**2

    return moments.estimate(error, _why(moments, group))


def oracle(moments: Moments, prompts: int, group: int) -> Estimate:
    """MSE of the policy gradient whose baseline is the true value V(x); `group` may be 1."""
    return _with_baseline(moments, prompts, group, lambda s: s.sigma1)


def reinforce(moments: Moments, prompts: int, group: int) -> Estimate:
    """MSE without a baseline."""
    return _with_baseline(moments, prompts, group, lambda s: s.raw - s.none)


def optimal_baseline(moments: Moments, prompts: int, group: int) -> Estimate:
    """MSE with the best constant baseline of each prompt, b* = E r‖s‖² / E‖s‖²."""
    return _with_baseline(moments, prompts, group, lambda s: s.sigma1 - s.tilt2)


def shrunk(moments: Moments, prompts: int, group: int, shrink: float, centre: float = 0.0) -> Estimate:
    """MSE with the baseline b = c + λ (mean of the others − c), λ = `shrink` and c = `centre`, fixed beforehand."""
    _check(prompts, group)

    def error(s: Statistics) -> NDArray:
        rollouts = _shrunk_square(s, shrink, centre) - s.none + shrink**2 * s.delta / (group - 1)
        return np.asarray((s.prompt_variance + rollouts / group) / prompts)

    return moments.estimate(error, _why(moments, group))


def best_shrink(moments: Moments, group: int, centre: float = 0.0) -> Estimate:
    """λ* of `shrunk` at this group size, one for all prompts; between 0 and 1 where the group mean is worth noise."""
    _check(1, group)

    def best(s: Statistics) -> NDArray:
        c = centre
        cross = s.value_paid - c * s.paid - c * s.value_norm + c**2 * s.norm
        square = s.value2_norm - 2 * c * s.value_norm + c**2 * s.norm
        return np.asarray(cross / (square + s.delta / (group - 1)))

    return moments.estimate(best, _why(moments, group))


def needed(moments: Moments, group: int, shrink: float, centre: float = 0.0) -> Estimate:
    """Rollouts that `shrunk` needs for the error of one prompt's gradient, over those of the oracle."""
    _check(1, group)

    def ratio(s: Statistics) -> NDArray:
        own = _shrunk_square(s, shrink, centre) - s.none + shrink**2 * s.delta / (group - 1)
        return np.asarray(own / s.sigma1)

    return moments.estimate(ratio, _why(moments, group))


def pays_from(moments: Moments) -> Estimate:
    """The real-valued G above which leave-one-out has less error than no baseline; ∞ where it never has."""

    def least(s: Statistics) -> NDArray:
        gain = s.raw - s.none - s.sigma1
        return np.asarray(np.where(gain > 0, 1 + s.delta / np.where(gain > 0, gain, 1.0), np.inf))

    return moments.estimate(least)


def standardized(
    moments: Moments,
    prompts: int,
    group: int,
    ddof: int = 1,
    eps: float = 1e-4,
    target: Literal["gradient", "own"] = "gradient",
) -> Estimate:
    """MSE of GRPO's standardized gradient, for two-valued rewards and groups no larger than the probe's.

    target "gradient": around E g, its bias (a re-weighting of prompts and a change of scale) included.
    target "own": around its own expectation, the variance alone. NaN with the reason as flag where it is unknown.
    ddof and eps are those of the group's standard deviation.
    """
    _check(prompts, group)

    classes = moments.classes
    reason = ""
    if classes is None:
        reason = "needs rewards of two values"
    elif classes.directions is None:
        reason = "needs the Gram matrix across prompts, (B, B)"
    elif group > classes.sizes.min():
        reason = f"the probe has {classes.sizes.min()} rollouts per prompt, too few for groups of {group}"
    elif moments.prompts < 2:
        reason = "one prompt does not show how prompts differ"
    if reason or classes is None:
        return Estimate(float("nan"), float("nan"), moments.prompts, reason)

    def error(weights: NDArray) -> NDArray:
        second, expectation, bias = classes.pooled(group, weights, ddof, eps)
        return (second - expectation) / prompts + (bias if target == "gradient" else 0.0)

    whole = error(resampling.point(moments.prompts))
    return resampling.estimate(float(whole[0]), error(resampling.jackknife(moments.prompts)), moments.flag)


def efficiency(moments: Moments, group: int) -> Estimate:
    """MSE of leave-one-out over that of the oracle for a given prompt: 1 + Δ/((G−1) Σ₁)."""
    _check(1, group)
    return moments.estimate(lambda s: 1 + s.delta / ((group - 1) * s.sigma1))


def budget(moments: Moments, prompts: int, group: int) -> _Budget:
    """The leave-one-out MSE in its three parts V_p/P + Σ₁/(PG) + Δ/(PG(G−1))."""
    _check(prompts, group)
    return _Budget(
        prompts=moments.estimate(lambda s: s.prompt_variance / prompts),
        oracle=moments.estimate(lambda s: s.sigma1 / (prompts * group)),
        residual=moments.estimate(lambda s: s.delta / (prompts * group * (group - 1))),
        total=leave_one_out(moments, prompts, group),
    )


def _with_baseline(moments: Moments, prompts: int, group: int, per_rollout: Curve) -> Estimate:
    """MSE (V_p + σ²/G)/P for a baseline with the variance σ² = `per_rollout` of one rollout."""
    _check(prompts, max(group, 2))
    if group < 1:
        raise UserError(f"a group cannot have {group} rollouts; use 1 or more")
    return moments.estimate(lambda s: (s.prompt_variance + per_rollout(s) / group) / prompts)


def _shrunk_square(s: Statistics, shrink: float, c: float) -> NDArray:
    """E (r − b̄)²‖s‖², b̄ = c + λ(V − c), from products of distinct rollouts."""
    own = s.raw - 2 * c * s.paid + c**2 * s.norm
    cross = s.value_paid - c * s.paid - c * s.value_norm + c**2 * s.norm
    square = s.value2_norm - 2 * c * s.value_norm + c**2 * s.norm
    return np.asarray(own - 2 * shrink * cross + shrink**2 * square)


def _why(moments: Moments, group: int) -> str:
    """The reason why the MSE at this group size cannot be estimated, empty if it can."""
    for moment in (moments.mean2, moments.g2) if group > 3 else (moments.mean2,):
        if np.isnan(moment.value):
            return moment.flag
    return ""


def _check(prompts: int, group: int) -> None:
    if prompts < 1:
        raise UserError(f"a batch cannot have {prompts} prompts; use 1 or more")
    if group < 2:
        raise UserError(f"a group of {group} rollout has nothing to compare with; use 2 rollouts per prompt or more")
