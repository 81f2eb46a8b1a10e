"""What credit for turns saves, from one Gram matrix of the scores of turns: noise of any turn credit, unbiased.

A rollout i of a group of n has turns h with scores s_ih (0 for turns that it did not take) and a credit W_ih for each:
the reward of the rollout (GRPO), the return from the turn on (to-go), that less a value, or any other. The leave-one-
out gradient 1/n Σ_ih (W_ih − mean of the others' W_jh) s_ih is the U-statistic with the kernel

    h(i, j) = ½ Σ_h (W_ih − W_jh)(s_ih − s_jh)

so that, as for one credit a rollout (`moments`), means of ⟨h(p), h(q)⟩ over pairs that share 2, 1 and 0 rollouts give

    ‖g‖² = none,   Σ₁ = 4 (one − none),   Δ = 2 (both − 2 one + none),   MSE = Σ₁/n + Δ/(n(n − 1))

without bias. Σ₁ = tr Var Σ_h (W_h − W̄_h) s_h, and Δ = Σ_h Var(W_h) tr F_h + Σ_hk ⟨M_hk, M_kh⟩ with M_hk = E[W_h s_k].

Everything is bilinear in the credit, so the part of turn h is the product of its own kernel with the whole one, and the
parts of all turns sum to the whole. With K the Gram of the scores (nH, nH), c the centred credit and a_i the
coefficients of Σ_j h(i, j) in the scores, sums over pairs are

    Σ_ij ⟨h(i, j), h'(i, j)⟩   by its definition      Σ_i a_iᵀ K a'_i      n² cᵀ K c'

Method of this project; tests enumerate every group of a toy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.maths import resampling

Floats = NDArray[np.float64]

LEAST = 4
"""Rollouts of a prompt from which all three moments are known."""


@dataclass(frozen=True)
class _TurnNoise:
    """Moments of one turn credit, per prompt (P,): means of ⟨h, h⟩ over pairs sharing two, one, no rollouts.

    by_turn (3, P, H): the part of each turn in the three; sums over turns are the moments.
    """

    both: Floats
    one: Floats
    none: Floats
    by_turn: Floats

    def noise(self, group: int) -> Floats:
        """Σ₁/G + Δ/(G(G − 1)) per prompt (P,): the squared error of the gradient of a group of this size."""
        return _noise(self.both, self.one, self.none, group)

    def noise_by_turn(self, group: int) -> Floats:
        """The same of each turn, (P, H)."""
        both, single, none = self.by_turn
        return _noise(both, single, none, group)


def _noise(both: Floats, single: Floats, none: Floats, group: int) -> Floats:
    sigma1, delta = 4 * (single - none), 2 * (both - 2 * single + none)
    return np.asarray(sigma1 / group + delta / (group * (group - 1)))


@dataclass(frozen=True)
class TurnSavings:
    """What turn credits save against a reward for the whole rollout, pooled over prompts.

    group: the size that the noise is of. noise: by credit, in squared units of the gradient. ratio: noise over that of
    the first credit; interval: of 95 %, by bootstrap over prompts. share: of each turn in the noise of the first
    credit, (H,), with its standard error by jackknife. prompts: that were used.
    """

    group: int
    noise: Mapping[str, Estimate]
    ratio: Mapping[str, Estimate]
    interval: Mapping[str, tuple[float, float]]
    share: tuple[Estimate, ...]
    prompts: int


def _of_group(gram: Floats, credit: Floats) -> Floats:
    """both, one and none of one group by turn, (3, H), from the Gram (n, H, n, H) of its turns and their credit (n, H).

    Absent turns have scores of 0, so that their rows of the Gram are 0, and a credit that counts in the means. n ≥ 4.
    """
    n, turns = credit.shape
    square = gram.reshape(n * turns, n * turns)
    centred = (credit - credit.mean(0)).reshape(-1)
    difference = credit[:, None] - credit[None]  # (n, n, H)
    coefficients = -0.5 * np.broadcast_to(difference[:, :, :], (n, n, turns)).copy()  # of s_jh in Σ_j h(i, j)
    coefficients[np.arange(n), np.arange(n)] = 0.5 * n * centred.reshape(n, turns)
    flat = coefficients.reshape(n, n * turns)
    products = flat @ square
    stars = (flat * products).reshape(n, n, turns).sum((0, 1))
    whole = n**2 * (centred * (square @ centred)).reshape(n, turns).sum(0)
    own = np.einsum("ihik->ihk", gram)
    cross = gram.transpose(0, 2, 1, 3)  # (i, j, h, k)
    between = own[:, None] + own[None, :] - cross - cross.swapaxes(0, 1)
    pairs = 0.25 * np.einsum("ijh,ijk,ijhk->h", difference, difference, between)
    both = pairs / (n * (n - 1))
    single = (stars - pairs) / (n * (n - 1) * (n - 2))
    none = (whole - 4 * stars + 2 * pairs) / (n * (n - 1) * (n - 2) * (n - 3))
    return np.array([both, single, none])


def _of_prompts(grams: Floats, credit: Floats) -> _TurnNoise:
    """Moments of a turn credit (P, n, H) from the Grams (P, n, H, n, H) of the prompts; UserError for n < 4."""
    if credit.shape[1] < LEAST:
        raise UserError(f"groups of {credit.shape[1]} rollouts do not show the noise of a credit; take {LEAST} or more")
    parts = np.stack([_of_group(gram, own) for gram, own in zip(grams, credit, strict=True)], 1)
    both, single, none = parts.sum(-1)
    return _TurnNoise(both, single, none, parts)


def savings(
    grams: Floats, credits: Mapping[str, Floats], group: int | None = None, replicates: int = 1000, seed: int = 0
) -> TurnSavings:
    """What each credit (P, n, H) saves against the first, for groups of `group` rollouts, by default n.

    grams (P, n, H, n, H): inner products of the scores of turns, within prompts. Prompts count once each. UserError for
    groups of fewer than four and where no credit is given.
    """
    if not credits:
        raise UserError("no credit was given; give that of the whole rollout first")
    measured = {name: _of_prompts(grams, credit) for name, credit in credits.items()}
    first = next(iter(measured.values()))
    prompts, size = len(grams), grams.shape[1]
    chosen = size if group is None else group
    weights = {"point": resampling.point(prompts), "left out": resampling.jackknife(prompts)}
    weights["drawn"] = resampling.bootstrap(prompts, replicates, seed)
    noise: dict[str, Estimate] = {}
    ratio: dict[str, Estimate] = {}
    interval: dict[str, tuple[float, float]] = {}
    for name, own in measured.items():
        means = {kind: resampling.mean(own.noise(chosen), w) for kind, w in weights.items()}
        base = {kind: resampling.mean(first.noise(chosen), w) for kind, w in weights.items()}
        noise[name] = resampling.estimate(float(means["point"][0]), means["left out"])
        quotients = {kind: _quotient(means[kind], base[kind]) for kind in weights}
        ratio[name] = resampling.estimate(float(quotients["point"][0]), quotients["left out"])
        interval[name] = resampling.interval(quotients["drawn"])
    return TurnSavings(chosen, noise, ratio, interval, _shares(first, chosen, weights), prompts)


def _shares(noise: _TurnNoise, group: int, weights: Mapping[str, Floats]) -> tuple[Estimate, ...]:
    whole = {kind: resampling.mean(noise.noise(group), w) for kind, w in weights.items()}
    made = []
    for own in noise.noise_by_turn(group).T:
        parts = {kind: _quotient(resampling.mean(own, w), whole[kind]) for kind, w in weights.items()}
        made.append(resampling.estimate(float(parts["point"][0]), parts["left out"]))
    return tuple(made)


def _quotient(numerator: Floats, other: Floats) -> Floats:
    """one / other (k,), NaN where the other is not above 0."""
    return np.divide(numerator, other, out=np.full(len(numerator), np.nan), where=other > 0)
