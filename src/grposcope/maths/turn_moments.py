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

from grposcope.core.estimate import Estimate

Floats = NDArray[np.float64]

LEAST = 4
"""Rollouts of a prompt from which all three moments are known."""


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
