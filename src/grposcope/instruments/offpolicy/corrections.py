"""Corrections of the gradient for rollouts of another policy: coefficients c_t ≥ 0 of A ∇log π(y_t).

With ρ_t the ratio of a token, w = Π_t ρ_t that of a completion of T tokens, and C, lo, hi the bounds:

    none                 1                                 no correction
    token_ratio          ρ_t                               the ratio of PPO without its clip (arXiv:1707.06347)
    token_cap            min(ρ_t, C)                       truncated importance sampling (Yao et al. 2025; verl)
    token_mask           ρ_t [ρ_t ≤ C]                     TRL's `token_mask`
    icepop               ρ_t [lo ≤ ρ_t ≤ hi]               IcePop (Ling team 2025; prime-rl, NeMo-RL)
    one_sided            [ρ_t ≤ 1 + ε] if A > 0, else [ρ_t ≥ 1 − ε]      arXiv:2509.24203
    prefix_ratio         Π_{u ≤ t} ρ_u                     per-decision importance sampling (Precup et al. 2000)
    sequence_cap         min(w, C)                         verl's `rollout_is: sequence`, TRL's `sequence_truncate`
    sequence_mask        w [w ≤ C]                         TRL's `sequence_mask`, its default
    sequence_rejection   [lo ≤ w ≤ hi]                     verl's `rollout_rs: seq_sum_k1`
    geometric_band       [lo ≤ w^{1/T} ≤ hi]               verl's `rollout_rs: seq_mean_k1`
    full                 w                                 importance sampling: no bias (leave-one-out advantages)

Every one of them but `one_sided` does not know the advantage. Before anything is cut or dropped, the mean of each
coefficient over rollouts of the sampler is 1: of ρ_t and w because they are ratios of probabilities. What its mean
lacks of 1 is therefore the weight that a correction throws away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grposcope.instruments.offpolicy.ratios import Floats, Ratios, exp

Level = Literal["token", "prefix", "sequence"]


def none(ratios: Ratios) -> Floats:
    """1 for every token, (N,)."""
    return np.ones(len(ratios.log))


def token_ratio(ratios: Ratios) -> Floats:
    """ρ_t, (N,)."""
    return exp(ratios.log)


def token_cap(ratios: Ratios, cap: float) -> Floats:
    """min(ρ_t, cap), (N,)."""
    return np.exp(np.minimum(ratios.log, math.log(cap)))


def token_mask(ratios: Ratios, cap: float) -> Floats:
    """ρ_t, 0 above the cap, (N,)."""
    return token_cap(ratios, cap) * (ratios.log <= math.log(cap))


def icepop(ratios: Ratios, low: float, high: float) -> Floats:
    """ρ_t, 0 outside of low to high, (N,)."""
    return token_mask(ratios, high) * (ratios.log >= math.log(low))


def one_sided(ratios: Ratios, epsilon: float) -> Floats:
    """1, but 0 where ρ_t has gone further than ε to the side that the advantage pushes it to, (N,).

    ValueError where the advantages are not known.
    """
    if ratios.advantages is None:
        raise ValueError("one-sided corrections need the advantages")
    rises = ratios.spread(ratios.advantages > 0)
    inside = np.where(rises, ratios.log <= math.log1p(epsilon), ratios.log >= math.log1p(-epsilon))
    return inside.astype(np.float64)


def prefix_ratio(ratios: Ratios) -> Floats:
    """Π_{u ≤ t} ρ_u, (N,)."""
    return exp(ratios.prefix)


def sequence_cap(ratios: Ratios, cap: float) -> Floats:
    """min(w, cap) on every token, (N,)."""
    return ratios.spread(np.exp(np.minimum(ratios.sequence, math.log(cap))))


def sequence_mask(ratios: Ratios, cap: float) -> Floats:
    """w on every token, 0 above the cap, (N,)."""
    kept = ratios.sequence <= math.log(cap)
    return ratios.spread(np.where(kept, np.exp(np.minimum(ratios.sequence, math.log(cap))), 0.0))


def sequence_rejection(ratios: Ratios, low: float, high: float) -> Floats:
    """1 on every token of a rollout whose w is from low to high, else 0, (N,)."""
    return ratios.spread(_within(ratios.sequence, low, high))


def geometric_band(ratios: Ratios, low: float, high: float) -> Floats:
    """1 on every token of a rollout whose geometric mean of ρ_t is from low to high, else 0, (N,)."""
    return ratios.spread(_within(ratios.sequence / ratios.lengths, low, high))


def full(ratios: Ratios) -> Floats:
    """w on every token, (N,)."""
    return ratios.spread(exp(ratios.sequence))


def _within(log: Floats, low: float, high: float) -> Floats:
    return ((log >= math.log(low)) & (log <= math.log(high))).astype(np.float64)


@dataclass(frozen=True)
class Correction:
    """A correction with its bounds.

    name: with the bounds, such as "sequence_cap:2". level: of the ratio that it uses. coefficients: from ratios to c_t
    (N,). upper: the largest ratio that it lets through unchanged, infinite where there is no such bound.
    of_advantage: whether it has to know the advantages.
    """

    name: str
    level: Level
    coefficients: Callable[[Ratios], Floats]
    upper: float = math.inf
    of_advantage: bool = False

    def beyond(self, ratios: Ratios) -> bool:
        """Whether any drawn ratio lies beyond the upper bound; true where there is none."""
        if self.upper == math.inf:
            return True
        largest = ratios.log.max() if self.level == "token" else ratios.sequence.max()
        return bool(largest > math.log(self.upper))


NONE = Correction("none", "token", none)
FULL = Correction("full", "sequence", full)

ALL = (
    NONE,
    Correction("token_ratio", "token", token_ratio),
    Correction("token_cap:2", "token", lambda r: token_cap(r, 2.0), 2.0),
    Correction("token_mask:3", "token", lambda r: token_mask(r, 3.0), 3.0),
    Correction("icepop:0.5,5", "token", lambda r: icepop(r, 0.5, 5.0)),
    Correction("one_sided:0.2", "token", lambda r: one_sided(r, 0.2), of_advantage=True),
    Correction("prefix_ratio", "prefix", prefix_ratio),
    Correction("sequence_cap:2", "sequence", lambda r: sequence_cap(r, 2.0), 2.0),
    Correction("sequence_mask:3", "sequence", lambda r: sequence_mask(r, 3.0), 3.0),
    Correction("sequence_rejection:0.5,2", "sequence", lambda r: sequence_rejection(r, 0.5, 2.0)),
    Correction("geometric_band:0.999,1.001", "sequence", lambda r: geometric_band(r, 0.999, 1.001)),
    FULL,
)
"""The corrections with the bounds that trainers have by default."""
