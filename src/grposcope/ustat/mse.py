"""Mean-squared error of a policy gradient from P prompts × G rollouts, for each way to choose the baseline.

With the averages over prompts of Σ₁, Δ and V_p of `moments`, and equalities throughout:

    leave-one-out   (1/P) [V_p + Σ₁/G + Δ/(G(G−1))]                   oracle   (1/P) [V_p + Σ₁/G]
    centered        ((G−1)/G)² × leave-one-out + ‖E g‖²/G²            (its target is E g too)
    any baseline b  (1/P) [V_p + (E (r−b)²‖s‖² − ‖g‖²)/G]:  b = 0 REINFORCE, b = V oracle,
                    b* = E r‖s‖²/E‖s‖² the best, saving Cov(r, ‖s‖²)²/E‖s‖²,  b = V + e a critic with error e
    standardized    (1/P) [E‖ĝ‖² − ‖E ĝ‖²] + ‖E ĝ − E g‖², see `classes`

Prompts are independent draws; the target is E_x g(x). The baseline rows use E s = 0, which scores of whole
sampled completions obey; `moments.per_prompt.score2` tells if yours do not. The first two do not need it
(their Σ₁ is 4 ζ₁). Sources: arXiv:2603.01162 for the U-statistic, the rest ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from grposcope.errors import UserError
from grposcope.records import Estimate
from grposcope.ustat import resampling
from grposcope.ustat.moments import Moments, Statistics

Curve = Callable[[Statistics], NDArray]


@dataclass(frozen=True)
class Budget:
    """Where the leave-one-out MSE comes from: drawing prompts, an oracle's rollouts, and not knowing V."""

    prompts: Estimate
    oracle: Estimate
    residual: Estimate
    total: Estimate


def second_moment(statistics: Statistics, group: int) -> NDArray:
    """E‖ĝ‖² of one leave-one-out group: the shares of pairs of pairs with two, one, no common rollouts.

    A group of 2 needs `both` alone and one of 3 also `one`, so these remain where `none` is unknown.
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
    """MSE of the policy gradient that knows V(x). A group of 1 will do."""
    return _with_baseline(moments, prompts, group, lambda s: s.sigma1)


def reinforce(moments: Moments, prompts: int, group: int) -> Estimate:
    """MSE without a baseline."""
    return _with_baseline(moments, prompts, group, lambda s: s.raw - s.none)


def optimal_baseline(moments: Moments, prompts: int, group: int) -> Estimate:
    """MSE with the best constant baseline of each prompt, b* = E r‖s‖² / E‖s‖²."""
    return _with_baseline(moments, prompts, group, lambda s: s.sigma1 - s.tilt2)


def critic(moments: Moments, prompts: int, group: int, error: float, bias: float = 0.0) -> Estimate:
    """MSE with a critic of the prompt's value whose root mean-squared error is `error`, of which `bias` is systematic.

    PPO's baseline where it does not depend on the tokens. b = V + e adds E e² E‖s‖² − 2 E e Cov(r, ‖s‖²),
    for errors that do not vary with the prompt.
    """
    if error < abs(bias):
        raise UserError(f"a critic's root mean-squared error {error:g} cannot be below its bias {bias:g}")
    return _with_baseline(moments, prompts, group, lambda s: s.sigma1 + error**2 * s.norm - 2 * bias * s.tilt)


def standardized(
    moments: Moments,
    prompts: int,
    group: int,
    ddof: int = 1,
    eps: float = 1e-4,
    target: Literal["gradient", "own"] = "gradient",
) -> Estimate:
    """MSE of GRPO's standardized gradient, for two-valued rewards and groups up to the probe's.

    target "gradient": around E g, its bias (a re-weighting of prompts and a change of scale) included.
    "own": around its own expectation, the variance alone. Elsewhere NaN, with the reason as flag.
    """
    _check(prompts, group)

    def error(parts: tuple[NDArray, ...]) -> NDArray:
        second, own, off, _, _ = parts
        return (second - own) / prompts + (off if target == "gradient" else 0.0)

    return _of_classes(moments, group, ddof, eps, error)


def standardized_cosine(moments: Moments, group: int, ddof: int = 1, eps: float = 1e-4) -> Estimate:
    """Cosine between the expected standardized gradient and E g: 1 where the bias is a mere change of scale."""

    def cosine(parts: tuple[NDArray, ...]) -> NDArray:
        _, own, _, mixed, true = parts
        product = own * true
        return np.divide(mixed, np.sqrt(np.abs(product)), out=np.full_like(mixed, np.nan), where=product > 0)

    return _of_classes(moments, group, ddof, eps, cosine)


def noise_to_signal(moments: Moments, prompts: int, group: int) -> Estimate:
    """Variance of the leave-one-out gradient over ‖E g‖²: free of scale, comparable with `standardized_noise`."""
    _check(prompts, group)
    return moments.estimate(lambda s: (second_moment(s, group) / s.mean2 - 1) / prompts, _why(moments, group))


def standardized_noise(moments: Moments, prompts: int, group: int, ddof: int = 1, eps: float = 1e-4) -> Estimate:
    """Variance of the standardized gradient over the square of its own expectation."""
    _check(prompts, group)
    return _of_classes(moments, group, ddof, eps, lambda parts: (parts[0] / parts[1] - 1) / prompts)


def efficiency(moments: Moments, group: int) -> Estimate:
    """MSE of leave-one-out over the oracle's, given the prompt: 1 + Δ/((G−1) Σ₁)."""
    _check(1, group)
    return moments.estimate(lambda s: 1 + s.delta / ((group - 1) * s.sigma1))


def budget(moments: Moments, prompts: int, group: int) -> Budget:
    """The leave-one-out MSE in its three parts V_p/P + Σ₁/(PG) + Δ/(PG(G−1))."""
    _check(prompts, group)
    return Budget(
        prompts=moments.estimate(lambda s: s.prompt_variance / prompts),
        oracle=moments.estimate(lambda s: s.sigma1 / (prompts * group)),
        residual=moments.estimate(lambda s: s.delta / (prompts * group * (group - 1))),
        total=leave_one_out(moments, prompts, group),
    )


def bound(moments: Moments, prompts: int, group: int, chance: float = 0.05) -> Estimate:
    """What ‖ĝ − E g‖² exceeds with probability at most `chance`: MSE/chance, by Markov's inequality.

    Holds at every P and G and for every distribution of gradients; nothing is asymptotic.
    """
    if not 0 < chance < 1:
        raise UserError(f"the chance {chance:g} must lie between 0 and 1")
    found = leave_one_out(moments, prompts, group)
    return Estimate(found.value / chance, found.se / chance, found.n, found.flag)


def _with_baseline(moments: Moments, prompts: int, group: int, per_rollout: Curve) -> Estimate:
    _check(prompts, max(group, 2))
    if group < 1:
        raise UserError(f"a group of {group} rollouts is none; use 1 or more")
    return moments.estimate(lambda s: (s.prompt_variance + per_rollout(s) / group) / prompts)


def _of_classes(
    moments: Moments, group: int, ddof: int, eps: float, quantity: Callable[[tuple[NDArray, ...]], NDArray]
) -> Estimate:
    classes = moments.classes
    _check(1, group)
    reason = ""
    if classes is None:
        reason = "needs rewards of two values"
    elif classes.directions is None:
        reason = "needs the Gram across prompts, (B, B)"
    elif group > classes.sizes.min():
        reason = f"the probe has {classes.sizes.min()} rollouts of a prompt: a group of {group} cannot be told from it"
    elif moments.prompts < 2:
        reason = "one prompt: nothing is known of how prompts differ"
    if reason or classes is None:
        return Estimate(float("nan"), float("nan"), moments.prompts, reason)
    whole, left_out = (
        quantity(classes.pooled(group, weights, ddof, eps))
        for weights in (resampling.point(moments.prompts), resampling.jackknife(moments.prompts))
    )
    return resampling.estimate(float(whole[0]), left_out, moments.flag)


def _why(moments: Moments, group: int) -> str:
    """The reason where the MSE at this group cannot be known."""
    for name in ("mean2", "g2") if group > 3 else ("mean2",):
        known: Estimate = getattr(moments, name)
        if np.isnan(known.value):
            return known.flag
    return ""


def _check(prompts: int, group: int) -> None:
    if prompts < 1:
        raise UserError(f"{prompts} prompts are none; use 1 or more")
    if group < 2:
        raise UserError(f"a group of {group} leaves nothing to compare with; use 2 rollouts per prompt or more")
