"""Two directions per group: the gradient and the mean scores of successes and of failures.

For binary rewards A takes two values and sums to zero, so with class means s̄₊ (K of G) and s̄₋

    (1/G) Σ A_i s_i = σ_K (s̄₊ − s̄₋)            standardized, ddof 0, no ε; σ_K = √(K/G (1 − K/G))
                     = (K/G)(1 − K/G) (s̄₊ − s̄₋)   centered

whatever G is. With rewards of m distinct values the same holds with m class means. A reduction that
weighs rollouts unevenly, such as GRPO's 1/|y_i|, keeps the identity for the weighted scores c_i s_i only.
All of it follows from the Gram matrix K_ij = ⟨s_i, s_j⟩ and the coefficients u of the gradient Σ u_i s_i.
"""

from __future__ import annotations

import math
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


def shares(coefficients: Array, rewards: Array, gram: Array) -> ClassMeanShares:
    """Share of each live group's squared gradient norm in the span of its class means, mean over groups.

    coefficients u and rewards (P, G); gram (B, B), prompt-major.
    """
    plain, reduced, distinct = [], [], []
    group = rewards.shape[1]
    for p, (r, u) in enumerate(zip(rewards, coefficients, strict=True)):
        if np.ptp(r) == 0 or not u.any():
            continue
        inner = gram[p * group : (p + 1) * group, p * group : (p + 1) * group]
        plain.append(_share_in_span(u, _two_means(r), inner))
        reduced.append(_share_in_span(u, _two_means(r) * _reduction(u, r), inner))
        distinct.append(_share_in_span(u, _means(r), inner))
    return ClassMeanShares(Estimate.mean(plain), Estimate.mean(reduced), Estimate.mean(distinct))


def _share_in_span(gradient: Array, basis: Array, gram: Array) -> float:
    """Share of ‖Σ u_i s_i‖² that lies in the span of the vectors Σ_i basis_{k,i} s_i; NaN for a zero gradient.

    gradient: u (G,). basis: (m, G). gram: (G, G).
    """
    total = float(gradient @ gram @ gradient)
    if not total > 0:
        return math.nan
    inner, along = basis @ gram @ basis.T, basis @ gram @ gradient
    projection = np.linalg.lstsq(inner, along, rcond=1e-12)[0]
    return min(float(along @ projection) / total, 1.0)


def _two_means(rewards: Array) -> Array:
    """Coefficients (2, G) of the mean scores of the rollouts above, and not above, the group's mean reward."""
    above = rewards > rewards.mean()
    return _means(above.astype(float))


def _means(labels: Array) -> Array:
    """Coefficients (m, G) of the class means, a class per distinct label, the largest label first."""
    rows = [(labels == value) / (labels == value).sum() for value in np.unique(labels)[::-1]]
    return np.array(rows)


def _reduction(coefficients: Array, rewards: Array) -> Array:
    """c_i up to a factor, from u_i = −c_i A_i and A_i ∝ r_i − r̄; 0 where A_i is 0, since there it does not matter."""
    centred = rewards - rewards.mean()
    return np.where(centred != 0, coefficients / np.where(centred != 0, centred, 1.0), 0.0)
