"""Softmax policies so small that every outcome of a group can be listed: expectations without sampling.

X prompts, equally likely, A answers each; log π(a|x) = ⟨φ(x,a), θ⟩ − log Z, so the score of an answer is
φ(x,a) − E φ(x,·).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EnumeratedPolicy:
    """chances (X, A), scores (X, A, D), rewards (X, A)."""

    chances: Array
    scores: Array
    rewards: Array

    @staticmethod
    def random(seed: int, prompts: int, answers: int, dimensions: int, binary: bool) -> EnumeratedPolicy:
        """Normal features, parameters and rewards; binary: in each prompt the first answer alone is right."""
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(prompts, answers, dimensions))
        weights = np.exp(features @ rng.normal(size=dimensions))
        chances = weights / weights.sum(-1, keepdims=True)
        mean = (chances[..., None] * features).sum(1, keepdims=True)
        drawn = rng.normal(size=(prompts, answers))
        rewards = np.eye(answers)[np.zeros(prompts, int)] if binary else drawn
        return EnumeratedPolicy(chances, features - mean, rewards)

    @property
    def gradients(self) -> Array:
        """∇ E r for each prompt, (X, D)."""
        return np.asarray((self.chances * self.rewards)[..., None] * self.scores).sum(1)

    def parts(self) -> tuple[float, float, float]:
        """V_p, Σ₁ and Δ, averaged over prompts, from their definitions."""
        g = self.gradients
        off = self.rewards - (self.chances * self.rewards).sum(1, keepdims=True)
        length = (self.scores**2).sum(-1)
        squared = (g**2).sum(-1)
        oracle = (self.chances * off**2 * length).sum(1) - squared
        residual = (self.chances * off**2).sum(1) * (self.chances * length).sum(1) + squared
        return float(squared.mean() - (g.mean(0) ** 2).sum()), float(oracle.mean()), float(residual.mean())

    def error(self, group: int, advantages: Callable[[Array, int], Array]) -> float:
        """E‖ĝ − E g‖² of one prompt and `group` rollouts, over every outcome.

        advantages: of the rewards (G,) of a group drawn from the prompt with this number, (G,).
        """
        target, total = self.gradients.mean(0), 0.0
        prompts, answers = self.chances.shape
        for x, drawn in itertools.product(
            range(prompts), itertools.combinations_with_replacement(range(answers), group)
        ):
            at = list(drawn)
            ways = math.factorial(group) / math.prod(math.factorial(at.count(a)) for a in set(at))
            estimate = advantages(self.rewards[x, at], x) @ self.scores[x, at] / group
            total += ways * float(self.chances[x, at].prod()) / prompts * float(((estimate - target) ** 2).sum())
        return total


def leave_one_out(rewards: Array, _: int = 0) -> Array:
    """r_i less the mean of the others, (G,)."""
    return np.asarray((rewards - rewards.mean()) * len(rewards) / (len(rewards) - 1))
