"""Two directions per group: the gradient and the mean scores of successes and of failures.

For binary rewards A takes two values and sums to zero, so with class means s̄₊ (K of G) and s̄₋

    (1/G) Σ A_i s_i = σ_K (s̄₊ − s̄₋)            standardized, ddof 0, no ε; σ_K = √(K/G (1 − K/G))
                     = (K/G)(1 − K/G) (s̄₊ − s̄₋)   centered

whatever G is. With rewards of m distinct values the same holds with m class means. A reduction that
weighs rollouts unevenly, such as GRPO's 1/|y_i|, keeps the identity for the weighted scores c_i s_i only.
All of it follows from the Gram matrix K_ij = ⟨s_i, s_j⟩ and the coefficients u of the gradient Σ u_i s_i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import NOT_MEASURED, Estimate

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClassMeanShares:
    """Share of a live group's squared gradient norm that lies in the span of its class means, mean over groups.

    plain: mean scores of successes and of failures. reduced: the same once rollouts are weighed as the objective
    does. distinct: a class per distinct reward.
    """

    plain: Estimate = NOT_MEASURED
    reduced: Estimate = NOT_MEASURED
    distinct: Estimate = NOT_MEASURED
