"""Softmax policies small enough that every outcome of a group, and of a batch of groups, can be listed.

X prompts, equally likely, A answers each; log π(a|x) = ⟨φ(x,a), θ⟩ − log Z, so the score of an answer is
φ(x,a) − E φ(x,·). A group's gradient does not depend on the order of its rollouts, so outcomes are counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Estimator = Callable[[NDArray, NDArray], NDArray]
"""Scores (G, D) and rewards (G,) of one group to a gradient (D,)."""


@dataclass(frozen=True)
class SmallPolicy:
    """chances (X, A), scores (X, A, D), rewards (X, A)."""

    chances: NDArray
    scores: NDArray
    rewards: NDArray

    @staticmethod
    def random(seed: int, prompts: int = 2, answers: int = 3, dimensions: int = 3, binary: bool = False) -> SmallPolicy:
        """Random features, parameters and rewards; with `binary` each prompt has one right answer or two."""
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(prompts, answers, dimensions))
        logits = features @ rng.normal(size=dimensions)
        chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        scores = features - np.einsum("xa,xad->xd", chances, features)[:, None]
        rewards = rng.normal(size=(prompts, answers))
        if binary:
            rewards = (np.arange(answers) < 1 + np.arange(prompts)[:, None] % 2).astype(float)
        return SmallPolicy(chances, scores, rewards)

    @property
    def gradients(self) -> NDArray:
        """g(x), (X, D)."""
        return np.einsum("xa,xa,xad->xd", self.chances, self.rewards, self.scores)

    def moments(self) -> dict[str, float]:
        """Exact averages over prompts of what `maths.moments` estimates, from their definitions."""
        p, s, r, g = self.chances, self.scores, self.rewards, self.gradients
        value = (p * r).sum(-1)
        variance = (p * (r - value[:, None]) ** 2).sum(-1)
        lengths = (s**2).sum(-1)
        norm = (p * lengths).sum(-1)
        tilt = (p * (r - value[:, None]) * lengths).sum(-1)
        sigma1 = (p * (r - value[:, None]) ** 2 * lengths).sum(-1) - (g**2).sum(-1)
        delta = variance * norm + (g**2).sum(-1)
        g2, mean2 = (g**2).sum(-1).mean(), (g.mean(0) ** 2).sum()
        return {
            "g2": g2,
            "mean2": mean2,
            "prompt_variance": g2 - mean2,
            "sigma1": sigma1.mean(),
            "delta": delta.mean(),
            "zeta1": sigma1.mean() / 4,
            "zeta2": (delta / 2 + sigma1 / 2).mean(),
            "norm": norm.mean(),
            "raw": (p * r**2 * lengths).sum(-1).mean(),
            "tilt": tilt.mean(),
            "tilt2": (tilt**2 / norm).mean(),
            "reward_variance": variance.mean(),
            "score2": 0.0,
            "paid": (p * r * lengths).sum(-1).mean(),
            "value_norm": (value * norm).mean(),
            "value_paid": (value * (p * r * lengths).sum(-1)).mean(),
            "value2_norm": (value**2 * norm).mean(),
        }

    def groups(self, size: int) -> Iterator[tuple[float, int, tuple[int, ...]]]:
        """Every outcome of one draw of a prompt and `size` answers: probability, prompt, answers in order."""
        prompts, answers = self.chances.shape
        for prompt in range(prompts):
            for chosen in itertools.combinations_with_replacement(range(answers), size):
                ways = math.factorial(size)
                for a in set(chosen):
                    ways //= math.factorial(chosen.count(a))
                yield ways * math.prod(self.chances[prompt, a] for a in chosen) / prompts, prompt, chosen

    def outcomes(self, estimator: Estimator, size: int) -> tuple[NDArray, NDArray]:
        """Probabilities (n,) and gradients (n, D) of one group."""
        listed = [
            (chance, estimator(self.scores[x, list(chosen)], self.rewards[x, list(chosen)]))
            for chance, x, chosen in self.groups(size)
        ]
        return np.array([chance for chance, _ in listed]), np.stack([gradient for _, gradient in listed])

    def mse(self, estimator: Estimator, prompts: int, size: int) -> float:
        """E‖mean of `prompts` groups − E g‖², over every combination of outcomes; prompts is 1, 2 or 4."""
        chance, gradient = self.outcomes(estimator, size)
        target = self.gradients.mean(0)
        if prompts == 1:
            return float(chance @ ((gradient - target) ** 2).sum(-1))
        pair_chance = (chance[:, None] * chance).reshape(-1)
        pair = (gradient[:, None] + gradient).reshape(-1, gradient.shape[1])
        if prompts == 2:
            return float(pair_chance @ ((pair / 2 - target) ** 2).sum(-1))
        assert prompts == 4
        total = 0.0
        for one_chance, one in zip(pair_chance, pair, strict=True):
            total += one_chance * float(pair_chance @ (((one + pair) / 4 - target) ** 2).sum(-1))
        return total


def leave_one_out(scores: NDArray, rewards: NDArray) -> NDArray:
    """(1/G) Σ_i (r_i − mean of the others) s_i, as written."""
    size = len(rewards)
    return sum((rewards[i] - np.delete(rewards, i).mean()) * scores[i] for i in range(size)) / size


def centered(scores: NDArray, rewards: NDArray) -> NDArray:
    """(1/G) Σ_i (r_i − r̄) s_i."""
    return (rewards - rewards.mean()) @ scores / len(rewards)


def standardized(scores: NDArray, rewards: NDArray, ddof: int = 1, eps: float = 1e-4) -> NDArray:
    """(1/G) Σ_i (r_i − r̄)/(σ + ε) s_i, 0 for equal rewards."""
    if np.ptp(rewards) == 0:
        return np.zeros(scores.shape[1])
    return ((rewards - rewards.mean()) / (rewards.std(ddof=ddof) + eps)) @ scores / len(rewards)


def with_baseline(baseline: Callable[[NDArray], NDArray]) -> Estimator:
    """(1/G) Σ_i (r_i − b) s_i; the baseline is given the first score, from which a test can tell the prompt."""
    return lambda scores, rewards: (rewards - baseline(scores[0])) @ scores / len(rewards)


def shrunk(shrink: float, centre: float) -> Estimator:
    """(1/G) Σ_i (r_i − c − λ (mean of the others − c)) s_i, as written."""

    def gradient(scores: NDArray, rewards: NDArray) -> NDArray:
        size, total = len(rewards), np.zeros(scores.shape[1])
        for i in range(size):
            total += (rewards[i] - centre - shrink * (np.delete(rewards, i).mean() - centre)) * scores[i]
        return total / size

    return gradient
