"""Two directions per group: the gradient and the mean scores of successes and of failures.

For binary rewards A takes two values and sums to zero, so with class means s̄₊ (K of G) and s̄₋

    (1/G) Σ A_i s_i = σ_K (s̄₊ − s̄₋)            standardized, ddof 0, no ε; σ_K = √(K/G (1 − K/G))
                     = (K/G)(1 − K/G) (s̄₊ − s̄₋)   centered

whatever G is. With rewards of m distinct values the same holds with m class means. A reduction that
weighs rollouts unevenly, such as GRPO's 1/|y_i|, keeps the identity for the weighted scores c_i s_i only.
Everything is read off the Gram matrix K_ij = ⟨s_i, s_j⟩ and the coefficients u of the gradient Σ u_i s_i.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def share_in_span(gradient: Array, basis: Array, gram: Array) -> float:
    """Share of ‖Σ u_i s_i‖² that lies in the span of the vectors Σ_i basis_{k,i} s_i; NaN for a zero gradient.

    gradient: u (G,). basis: (m, G). gram: (G, G).
    """
    total = float(gradient @ gram @ gradient)
    if not total > 0:
        return math.nan
    inner, along = basis @ gram @ basis.T, basis @ gram @ gradient
    found = np.linalg.lstsq(inner, along, rcond=1e-12)[0]
    return min(float(along @ found) / total, 1.0)


def sides(rewards: Array) -> Array:
    """Mean-score coefficients (2, G) of the rollouts above and not above the group's mean reward."""
    above = rewards > rewards.mean()
    return means(above.astype(float))


def means(labels: Array) -> Array:
    """Coefficients (m, G) of the class means, a class per distinct label, the largest first."""
    rows = [(labels == value) / (labels == value).sum() for value in np.unique(labels)[::-1]]
    return np.array(rows)


def two_class_error(gradient: Array, rewards: Array, gram: Array) -> float:
    """‖Σ u s − q (s̄₊ − s̄₋)‖ / ‖Σ u s‖ with the best q: 0 where the gradient is the difference of the class means."""
    total = float(gradient @ gram @ gradient)
    if not total > 0:
        return math.nan
    plus, minus = sides(rewards)
    difference = plus - minus
    size = float(difference @ gram @ difference)
    off = gradient - (float(difference @ gram @ gradient) / size if size else 0.0) * difference
    return math.sqrt(max(float(off @ gram @ off), 0.0) / total)
