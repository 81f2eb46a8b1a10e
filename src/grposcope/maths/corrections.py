"""Corrections of the gradient for rollouts of another policy: coefficients c_t ≥ 0 of A ∇log π(y_t).

With ρ_t the ratio of a token, w = Π_t ρ_t that of a completion of T tokens, and C, lo, hi the bounds:

    none                 1                                 no correction
    token_ratio          ρ_t                               the ratio of PPO without its clip (arXiv:1707.06347)
    token_cap            min(ρ_t, C)                       truncated importance sampling (Yao et al. 2025; verl)
    token_mask           ρ_t [ρ_t ≤ C]                     TRL's `_token_mask`
    icepop               ρ_t [lo ≤ ρ_t ≤ hi]               IcePop (Ling team 2025; prime-rl, NeMo-RL)
    one_sided            [ρ_t ≤ 1 + ε] if A > 0, else [ρ_t ≥ 1 − ε]      arXiv:2509.24203
    prefix_ratio         Π_{u ≤ t} ρ_u                     per-decision importance sampling (Precup et al. 2000)
    sequence_cap         min(w, C)                         verl's `rollout_is: sequence`, TRL's `sequence_truncate`
    sequence_mask        w [w ≤ C]                         TRL's `_sequence_mask`, its default
    sequence_rejection   [lo ≤ w ≤ hi]                     verl's `rollout_rs: seq_sum_k1`
    geometric_band       [lo ≤ w^{1/T} ≤ hi]               verl's `rollout_rs: seq_mean_k1`
    ppo_clip             ρ_t, 0 if A > 0 and ρ_t > 1 + hi, if A < 0 and ρ_t < 1 − lo or ρ_t > C: PPO, dual clip
                         (arXiv:1707.06347, 1912.09729)
    probability_band     ρ_t, 0 if A > 0 and π − μ > hi, or A < 0 and π − μ < −lo      prime-rl's `dppo_mask`
    gspo                 w^{1/T}, 0 if A > 0 and w^{1/T} > 1 + hi, or A < 0 and w^{1/T} < 1 − lo      arXiv:2507.18071
    full                 w                                 importance sampling: no bias (leave-one-out advantages)

Only those with A in their definition know the advantage. Before anything is cut or dropped, the mean of each
coefficient over rollouts of the sampler is 1: of ρ_t and w because they are ratios of probabilities. What its mean
lacks of 1 is therefore the weight that a correction throws away. The mean of w^{1/T} is below 1 without a cut.

verl holds the bounds `lower_upper` of `seq_sum_k1` and `seq_mean_k1` against the inverse ratio: with 0.5_4 it keeps
ratios from 0.25 to 2. Those of `rollout_is` are of the ratio itself, as all bounds are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grposcope.core.errors import UserError
from grposcope.maths.importance import LARGEST, Floats, Ratios, exp

Level = Literal["token", "prefix", "sequence"]


def _none(ratios: Ratios) -> Floats:
    """1 for every token, (N,)."""
    return np.ones(len(ratios.log))


def _token_ratio(ratios: Ratios) -> Floats:
    """ρ_t, (N,)."""
    return exp(ratios.log)


def _token_cap(ratios: Ratios, cap: float) -> Floats:
    """min(ρ_t, cap), (N,)."""
    return np.exp(np.minimum(ratios.log, math.log(cap)))


def _token_mask(ratios: Ratios, cap: float) -> Floats:
    """ρ_t, 0 above the cap, (N,)."""
    return _token_cap(ratios, cap) * (ratios.log <= math.log(cap))


def _icepop(ratios: Ratios, low: float, high: float) -> Floats:
    """ρ_t, 0 outside of low to high, (N,)."""
    return _token_mask(ratios, high) * (ratios.log >= math.log(low))


def _one_sided(ratios: Ratios, epsilon: float) -> Floats:
    """1, but 0 where ρ_t has gone further than ε to the side that the advantage pushes it to, (N,).

    ValueError where the advantages are not known.
    """
    rises = _advances(ratios) > 0
    inside = np.where(rises, ratios.log <= math.log1p(epsilon), ratios.log >= math.log1p(-epsilon))
    return inside.astype(np.float64)


def _advances(ratios: Ratios) -> Floats:
    """Advantage of every token, (N,); ValueError where they are not known."""
    if ratios.advantages is None:
        raise ValueError("a correction by the sign of the advantage needs the advantages")
    return ratios.spread(ratios.advantages)


def _ppo_clip(ratios: Ratios, low: float, high: float, cap: float) -> Floats:
    """ρ_t, 0 where PPO's clip has no gradient, and for A < 0 above the cap too (dual clip), (N,)."""
    advantage = _advances(ratios)
    risen = (advantage > 0) & (ratios.log > math.log1p(high))
    fallen = (advantage < 0) & ((ratios.log < math.log1p(-low)) | (ratios.log > math.log(cap)))
    return _token_ratio(ratios) * ~(risen | fallen)


def _probability_band(ratios: Ratios, low: float, high: float) -> Floats:
    """ρ_t, 0 where the token's probability is further than a bound from the sampler's, where A pushes it, (N,).

    ValueError where the advantages or the sampler's probabilities are not known.
    """
    if ratios.sampler is None:
        raise ValueError("a correction by differences of probabilities needs those of the sampler")
    advantage, moved = _advances(ratios), np.exp(ratios.sampler) * np.expm1(np.minimum(ratios.log, LARGEST))
    return _token_ratio(ratios) * ~(((advantage > 0) & (moved > high)) | ((advantage < 0) & (moved < -low)))


def _gspo(ratios: Ratios, low: float, high: float) -> Floats:
    """w^{1/T} on every token, 0 where GSPO's clip has no gradient, (N,)."""
    advantage, mean = _advances(ratios), ratios.spread(ratios.sequence / ratios.lengths)
    risen, fallen = (advantage > 0) & (mean > math.log1p(high)), (advantage < 0) & (mean < math.log1p(-low))
    return exp(mean) * ~(risen | fallen)


def _prefix_ratio(ratios: Ratios) -> Floats:
    """Π_{u ≤ t} ρ_u, (N,)."""
    return exp(ratios.prefix)


def _sequence_cap(ratios: Ratios, cap: float) -> Floats:
    """min(w, cap) on every token, (N,)."""
    return ratios.spread(np.exp(np.minimum(ratios.sequence, math.log(cap))))


def _sequence_mask(ratios: Ratios, cap: float) -> Floats:
    """w on every token, 0 above the cap, (N,)."""
    untruncated = ratios.sequence <= math.log(cap)
    return ratios.spread(np.where(untruncated, np.exp(np.minimum(ratios.sequence, math.log(cap))), 0.0))


def _sequence_rejection(ratios: Ratios, low: float, high: float) -> Floats:
    """1 on every token of a rollout whose w is from low to high, else 0, (N,)."""
    return ratios.spread(_within(ratios.sequence, low, high))


def _geometric_band(ratios: Ratios, low: float, high: float) -> Floats:
    """1 on every token of a rollout whose geometric mean of ρ_t is from low to high, else 0, (N,)."""
    return ratios.spread(_within(ratios.sequence / ratios.lengths, low, high))


def _full(ratios: Ratios) -> Floats:
    """w on every token, (N,)."""
    return ratios.spread(exp(ratios.sequence))


def _within(log: Floats, low: float, high: float) -> Floats:
    return ((log >= math.log(low)) & (log <= math.log(high))).astype(np.float64)


@dataclass(frozen=True)
class Correction:
    """A correction with its bounds.

    name: with the bounds, such as "sequence_cap:2". level: of the ratio that it uses. coefficients: from ratios to c_t
    (N,). upper: the largest ratio that it lets through unchanged, infinite where there is no such bound.
    of_advantage: whether it has to know the advantages; of_probability: and the sampler's probabilities.
    """

    name: str
    level: Level
    coefficients: Callable[[Ratios], Floats]
    upper: float = math.inf
    of_advantage: bool = False
    of_probability: bool = False

    def known(self, ratios: Ratios) -> bool:
        """Whether the ratios carry what it has to know."""
        return not (self.of_advantage and ratios.advantages is None) and not (
            self.of_probability and ratios.sampler is None
        )

    def beyond(self, ratios: Ratios) -> bool:
        """Whether any drawn ratio lies beyond the upper bound; true where there is none."""
        if self.upper == math.inf:
            return True
        largest = ratios.log.max() if self.level == "token" else ratios.sequence.max()
        return bool(largest > math.log(self.upper))


@dataclass(frozen=True)
class _Form:
    """A kind of correction: its function of ratios and bounds, the level of the ratio, and its usual bounds.

    caps: whether its only bound is the largest ratio that passes unchanged. of_advantage, of_probability: as of
    `Correction`.
    """

    function: Callable[..., Floats]
    level: Level
    bounds: tuple[float, ...] = ()
    caps: bool = False
    of_advantage: bool = False
    of_probability: bool = False


FORMS = {
    "none": _Form(_none, "token"),
    "token_ratio": _Form(_token_ratio, "token"),
    "token_cap": _Form(_token_cap, "token", (2.0,), caps=True),
    "token_mask": _Form(_token_mask, "token", (3.0,), caps=True),
    "icepop": _Form(_icepop, "token", (0.5, 5.0)),
    "one_sided": _Form(_one_sided, "token", (0.2,), of_advantage=True),
    "ppo_clip": _Form(_ppo_clip, "token", (0.2, 0.2, 3.0), of_advantage=True),
    "probability_band": _Form(_probability_band, "token", (0.2, 0.2), of_advantage=True, of_probability=True),
    "prefix_ratio": _Form(_prefix_ratio, "prefix"),
    "sequence_cap": _Form(_sequence_cap, "sequence", (2.0,), caps=True),
    "sequence_mask": _Form(_sequence_mask, "sequence", (3.0,), caps=True),
    "sequence_rejection": _Form(_sequence_rejection, "sequence", (0.5, 2.0)),
    "geometric_band": _Form(_geometric_band, "sequence", (0.999, 1.001)),
    "gspo": _Form(_gspo, "sequence", (3e-4, 4e-4), of_advantage=True),
    "full": _Form(_full, "sequence"),
}
"""The kinds of correction by name, with the bounds that trainers have by default."""


def named(text: str) -> Correction:
    """The correction of a name with bounds, such as "sequence_cap:2"; bounds left out are those of trainers.

    UserError for an unknown name, the wrong number of bounds, and bounds that are not positive and in order.
    """
    name, _, bounds_text = text.partition(":")
    if name not in FORMS:
        raise UserError(f"unknown correction {name!r}; use one of {', '.join(FORMS)}")
    form = FORMS[name]
    try:
        bounds = tuple(float(word) for word in bounds_text.split(",")) if bounds_text else form.bounds
    except ValueError:
        bounds = (math.nan,)
    rising = list(bounds) == sorted(bounds) and all(0 < bound < math.inf for bound in bounds)
    if len(bounds) != len(form.bounds) or not rising or (form.of_advantage and not bounds[0] < 1):
        example = ":".join([name, *([",".join(f"{bound:g}" for bound in form.bounds)] if form.bounds else [])])
        raise UserError(f"correction {text!r} has bounds that cannot be; write it like {example}")
    full_name = ":".join([name, *([",".join(f"{bound:g}" for bound in bounds)] if bounds else [])])
    function = form.function
    return Correction(
        full_name, form.level, lambda ratios: function(ratios, *bounds), bounds[0] if form.caps else math.inf,
        form.of_advantage, form.of_probability,
    )  # fmt: skip


NONE = named("none")
FULL = named("full")

ALL = (NONE, *(named(name) for name in FORMS if name not in (NONE.name, FULL.name)), FULL)
"""The corrections with the bounds that trainers have by default."""
