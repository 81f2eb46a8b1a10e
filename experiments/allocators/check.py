"""Whether draws by success rates lower the error of gradients that they were not made from.

Half of each group's rollouts says how often the prompt is solved and how large gradients are; from that the optimal
draw and the best fixed group size are made. The gradients of the other half then tell both errors: N · MSE of a draw is
linear in each prompt's second moment a_x(G), and ‖g_x‖² + Σ₁/G + Δ/(G(G−1)) by the U-statistics of that half is an
unbiased estimate of it. Both halves take both parts. Method of this project; no publication.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from allocators import theory
from allocators.norms import Norms, fitted, spread_over
from grposcope.core.run import Floats, Ints
from grposcope.lab.allocation.beta import Rates
from grposcope.maths import moments as gradient_moments
from grposcope.maths import resampling
from grposcope.maths.moments import LEAST, Moments, Statistics

FLOOR = 0.2
"""Share of uniform draws, as `lab.policies.Optimal` has it unless told otherwise."""

LEAST_PROMPTS = 16


@dataclass(frozen=True)
class Checked:
    """Share of the rollouts that the draw saved against the best fixed size, where it was not made from them.

    interval: 95 %. predicted: what the half that the draw was made from promised.
    """

    saving: float
    interval: tuple[float, float]
    predicted: float

    def shown(self) -> str:
        """What was promised, and what was measured with its interval."""
        low, high = self.interval
        return f"{self.predicted:.1%}, {self.saving:.1%} ({low:.1%} to {high:.1%})"


def of_gram(gram: Floats, rewards: Floats, replicates: int = 200, seed: int = 0) -> Checked | None:
    """The check on a probe's Gram matrix (B, B), prompt-major, and its rewards (P, G), NaN for absent rollouts.

    None below 8 rollouts of each prompt or 16 prompts that lack none, and for rewards that do not take two values.
    Intervals: bootstrap over prompts.
    """
    group = rewards.shape[1]
    whole = np.flatnonzero(~np.isnan(rewards).any(1))
    if group < 2 * LEAST or len(whole) < LEAST_PROMPTS or len(np.unique(rewards[whole])) != 2:
        return None
    half = group // 2
    halves = [_half(gram, rewards, whole, start + 2 * np.arange(half), replicates, seed) for start in (0, 1)]
    every = np.arange(len(whole))
    weights = halves[0][1].weights.astype(int)

    def value(which: Ints, draw: int | None) -> Floats:
        both = [
            _savings(successes[which], told, measured, which, draw, half)
            for (successes, told), (_, measured) in (halves, halves[::-1])
        ]
        return np.asarray(np.mean(both, 0))

    point = value(every, None)
    drawn = np.array([value(np.repeat(every, weights[i]), i) for i in range(replicates)])
    return Checked(float(point[0]), resampling.interval(drawn[:, 0]), float(point[1]))


def _half(
    gram: Floats, rewards: Floats, whole: Ints, columns: Ints, replicates: int, seed: int
) -> tuple[Floats, Moments]:
    """Successes of some rollouts of each prompt, (P,), and the moments of their gradients."""
    some = rewards[np.ix_(whole, columns)]
    rows = (whole[:, None] * rewards.shape[1] + columns).ravel()
    high = np.nanmax(rewards)
    return (some == high).sum(1).astype(np.float64), gradient_moments.from_gram(
        gram[np.ix_(rows, rows)], some, replicates, seed
    )


def _savings(
    successes: Floats, told: Moments, measured: Moments, which: Ints, draw: int | None, rollouts: int
) -> tuple[float, float]:
    """Measured and predicted saving on prompts `which`, those of bootstrap draw `draw`; None for all."""
    n, sizes = np.full(len(which), float(rollouts)), np.array(theory.SIZES)
    a, b = spread_over(successes, n)
    rates, share = Rates(a + successes, b + n - successes), np.full(len(which), 1 / len(which))
    norms = _norms(rates, told, which, draw)
    assumed, squared = norms.second_moments(rates, sizes), norms.mean_squared(rates)
    best = theory.own_sizes(assumed, sizes, share, squared, FLOOR)
    plain = theory.uniform(assumed, sizes, share, squared)
    known = _mean_squared(measured, draw)
    errors = [
        theory.noise(_second(measured.per_prompt, which, one.sizes), share, one.chances, one.sizes, known)
        for one in (best, plain)
    ]
    return _saved(*errors), _saved(best.noise, plain.noise)


def _saved(ours: float, theirs: float) -> float:
    """1 − their quotient; NaN where no draw has any error, as where no group has two successes and two failures."""
    return 1 - ours / theirs if theirs else math.nan


def _norms(rates: Rates, told: Moments, which: Ints, draw: int | None) -> Norms:
    each = told.per_prompt
    return fitted(rates, each.none[which], ((each.delta + each.sigma1) / 2)[which], _mean_squared(told, draw))


def _mean_squared(moments: Moments, draw: int | None) -> float:
    """‖E g‖² of all prompts, or of a bootstrap draw."""
    return float(moments.pooled.mean2[0] if draw is None else moments.bootstrap.mean2[draw])


def _second(each: Statistics, which: Ints, sizes: Ints) -> Floats:
    """Unbiased a_x(G) of prompts at a size for each, (P,)."""
    parts = each.none[which], each.sigma1[which] / sizes, each.delta[which] / (sizes * (sizes - 1))
    return np.asarray(sum(parts))
