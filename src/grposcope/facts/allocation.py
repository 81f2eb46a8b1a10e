"""What allocation would save against the best fixed group size, from a probe or from the rewards of a run.

The rollouts tell each prompt's success rate as far as they go: a Beta distribution fitted over prompts and updated by
the prompt's own rewards. The optimal draw is made from exactly that knowledge, and its error is averaged over it, so
the saving is what a forecast as sharp as these rollouts is worth; where every rate were known it would be `known`. A
probe measures how gradients depend on the success rate; of a run they are assumed, over a range that the interval
contains. Method of this project; no publication.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.allocation import optimal
from grposcope.allocation.beta import Rates, spread_over
from grposcope.allocation.norms import DEFAULT, Norms, fitted
from grposcope.formatting import percent
from grposcope.runs.run import Floats
from grposcope.ustat import confidence, resampling
from grposcope.ustat.moments import Moments

LEAST_PROMPTS = 16
"""Prompts with two rollouts or more below which nothing is said."""

ASSUMED = tuple(
    Norms(separation * 0.25**-power, power, alignment=alignment)
    for separation, power, alignment in itertools.product((0.3, 1.0, 2.0), (0.0, -0.5), (0.01, 0.1, 0.5))
)
"""Norms that a run without probes may have."""


@dataclass(frozen=True)
class Saving:
    """Share of the rollouts that optimal draws save, against uniform draws of the best single group size.

    fixed: that size. own, one: with a group size for each prompt, and with one for all; known: with sizes of their own
    if every success rate were known; 95 % intervals beside them. prompts: how many it rests on. measured: whether the
    norms of gradients are a probe's. reason: why nothing can be told, and what to do, empty where something can.
    """

    fixed: int = 0
    own: float = math.nan
    own_interval: tuple[float, float] = (math.nan, math.nan)
    one: float = math.nan
    known: float = math.nan
    known_interval: tuple[float, float] = (math.nan, math.nan)
    prompts: int = 0
    measured: bool = False
    reason: str = ""

    def sentence(self) -> str:
        """What allocation would save, or why that cannot be told."""
        if self.reason:
            return f"Cannot tell what allocation would save: {self.reason}."
        low, high = self.own_interval
        basis = (
            "with the norms of gradients that the probe measured"
            if self.measured
            else "whatever the norms of gradients are within the usual range; a probe of 8 rollouts of each prompt "
            "measures them, and checks this promise"
        )
        return (
            f"With allocate optimal, draws and group sizes by success rates, known as well as these "
            f"rollouts tell them, save {percent(self.own)} of the rollouts (95% interval {percent(low)} to "
            f"{percent(high)}) against the best fixed G = {self.fixed} with uniform draws, {basis}; one group size for "
            f"all saves {percent(self.one)}. If every success rate were known: {percent(self.known)} "
            f"({percent(self.known_interval[0])} to {percent(self.known_interval[1])}). For leave-one-out advantages."
        )


def of_probe(moments: Moments, rewards: Floats, replicates: int = 200, seed: int = 0) -> Saving:
    """The saving that a probe's rewards (P, G), NaN for absent rollouts, and moments support."""
    present = ~np.isnan(rewards)
    enough = present.sum(1) >= min(4, int(present.sum(1).max()))  # as `ustat.moments` has it
    successes, rollouts, reason = _counts(rewards[enough])
    informative = int(moments.informative.sum())
    if not reason and informative < confidence.LEAST_INFORMATIVE:
        reason = (
            f"{informative} groups have two successes and two failures, and only those show how large gradients are; "
            f"at least {confidence.LEAST_INFORMATIVE} are needed, so probe more prompts"
        )
    if reason:
        return Saving(prompts=len(rewards), reason=reason)
    each = moments.per_prompt
    noise = (each.delta + each.sigma1) / 2

    def value(which: np.ndarray, mean_squared: float, draw: int) -> tuple[float, ...]:
        rates = _posterior(successes[which], rollouts[which])
        norms = fitted(rates, each.none[which], noise[which], mean_squared)
        return _savings(rates, norms, draw)

    every = np.arange(len(successes))
    point = value(every, float(moments.pooled.mean2[0]), seed)
    rng = np.random.default_rng(seed)
    drawn = [
        value(rng.choice(every, len(every)), float(moments.bootstrap.mean2[i % len(moments.bootstrap.mean2)]), i)
        for i in range(replicates)
    ]
    return _saving(point, np.array(drawn), len(every), measured=True)


def of_rewards(rewards: Floats, problems: Sequence[int], replicates: int = 100, seed: int = 0) -> Saving:
    """The saving that the rewards (N, n) of a run's groups support, NaN where a group has no such rollout.

    problems (N,): which one each group is of; groups of one problem are taken together.
    """
    _, owner = np.unique(np.asarray(problems), return_inverse=True)
    k, n, reason = _counts(rewards)
    if reason:
        return Saving(prompts=int(owner.max()) + 1 if len(owner) else 0, reason=reason)
    successes, rollouts = (np.bincount(owner, part).astype(np.float64) for part in (k, n))
    every = np.arange(len(successes))
    point = _savings(_posterior(successes, rollouts), DEFAULT, seed)
    rng = np.random.default_rng(seed)
    drawn = []
    for i in range(replicates):
        which = rng.choice(every, len(every))
        rates = _posterior(successes[which], rollouts[which])
        drawn.append(_savings(rates, ASSUMED[i % len(ASSUMED)], i))
    return _saving(point, np.array(drawn), len(every), measured=False)


def _counts(rewards: Floats) -> tuple[Floats, Floats, str]:
    """Successes and rollouts of each group, and why they tell nothing, empty where they do."""
    present = ~np.isnan(rewards)
    values = np.unique(rewards[present])
    n = present.sum(1).astype(np.float64)
    if len(values) > 2:
        return n, n, "rewards take more than two values, so there is no success rate to allocate by"
    if len(values) < 2:
        return (
            n,
            n,
            (
                "all groups are dead, so no success rate is between 0 and 1; use problems that the model solves "
                "sometimes, or more rollouts of each"
            ),
        )
    if len(n) < LEAST_PROMPTS or n.min() < 2:
        return n, n, f"it takes {LEAST_PROMPTS} groups of two rollouts or more; probe or log more prompts"
    return (present & (rewards == values[1])).sum(1).astype(np.float64), n, ""


def _posterior(successes: Floats, rollouts: Floats) -> Rates:
    a, b = spread_over(successes, rollouts)
    return Rates(a + successes, b + rollouts - successes)


def _savings(rates: Rates, norms: Norms, seed: int) -> tuple[float, float, float, float]:
    """Savings with own sizes, with one size, and with own sizes if the rates were known; and the best fixed size."""
    share, sizes = np.full(len(rates.a), 1 / len(rates.a)), np.array(optimal.SIZES)
    second, mean_squared = norms.second_moments(rates, sizes), norms.mean_squared(rates)
    plain = optimal.uniform(second, sizes, share, mean_squared)
    own, one = (find(second, sizes, share, mean_squared) for find in (optimal.own_sizes, optimal.one_size))
    p = np.clip(np.random.default_rng(seed).beta(rates.a, rates.b), 1e-4, 1 - 1e-4)
    sharp = Rates(1e6 * p, 1e6 * (1 - p))
    exact, mean_exact = norms.second_moments(sharp, sizes), norms.mean_squared(sharp)
    known = optimal.own_sizes(exact, sizes, share, mean_exact).noise
    known /= optimal.uniform(exact, sizes, share, mean_exact).noise
    return 1 - own.noise / plain.noise, 1 - one.noise / plain.noise, 1 - known, float(plain.sizes[0])


def _saving(point: tuple[float, ...], drawn: Floats, prompts: int, measured: bool) -> Saving:
    """The facts from the point and the bootstrap draws (R, 4)."""
    return Saving(
        fixed=int(point[3]),
        own=point[0],
        own_interval=resampling.interval(drawn[:, 0]),
        one=point[1],
        known=float(np.median(drawn[:, 2])),
        known_interval=resampling.interval(drawn[:, 2]),
        prompts=prompts,
        measured=measured,
    )
