"""Success rates from features: a logistic regression that follows the run and forgets.

log odds = w·x. What is known of w is a normal distribution with mean w and precision Λ. Before each batch the precision
is drawn back towards that of the start, Λ ← Λ₀ + R(Λ − Λ₀)R with a diagonal R, so that old batches count ρ = R², ρ², …,
the level of the run, which is the first weight, fading faster than what makes problems differ; then the batch enters by
Newton's method on its binomial likelihood, which is Laplace's approximation. Rollouts of one problem are worth fewer
independent ones where its rate lies off the prediction: a group of n counts n/(1 + (n − 1)/(s + 1)), s the strength of
the Beta distribution around the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PRECISION = 0.25
"""Λ₀ of each weight: features are standardized, so log odds of ±4 per standard deviation are within reach."""

LEVEL_HALF_LIFE, HALF_LIFE = 2.0, 8.0
"""Batches after which a batch counts half as much: for the first weight, and for the others."""


@dataclass(frozen=True)
class Weights:
    """Normal distribution of the weights (F,) with precision (F, F)."""

    mean: Floats
    precision: Floats

    @staticmethod
    def start(features: int) -> Weights:
        """The weights before any batch: 0, so that every rate is ½, and hardly held there."""
        return Weights(np.zeros(features), PRECISION * np.eye(features))

    def rates(self, x: Floats) -> Floats:
        """Predicted success rates (C,) for features (C, F), within 0.001 … 0.999."""
        return np.asarray(np.clip(1 / (1 + np.exp(-np.clip(x @ self.mean, -30, 30))), 1e-3, 1 - 1e-3))


def updated(weights: Weights, x: Floats, successes: Floats, rollouts: Floats, strength: float) -> Weights:
    """The weights after a batch of groups: features (M, F), successes and rollouts (M,)."""
    first = PRECISION * np.eye(len(weights.mean))
    fading = 0.5 ** (0.5 / np.array([LEVEL_HALF_LIFE] + [HALF_LIFE] * (len(weights.mean) - 1)))
    prior = first + fading[:, None] * (weights.precision - first) * fading
    share = 1 / (1 + (rollouts - 1) / (strength + 1))
    w = weights.mean
    for _ in range(6):
        m = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        slope = x.T @ (share * (successes - rollouts * m)) - prior @ (w - weights.mean)
        curvature = prior + (x * (share * rollouts * m * (1 - m))[:, None]).T @ x
        step = np.linalg.solve(curvature, slope)
        if float(np.abs(step).max()) < 1e-9:
            break
        w = w + step / max(1.0, float(np.abs(step).max()) / 2)  # of 2 at most, against overshooting far from the top
    m = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
    return Weights(w, prior + (x * (share * rollouts * m * (1 - m))[:, None]).T @ x)
