"""Exact expectations: every outcome of a group, with its probability."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence


def outcomes(probabilities: Sequence[float], group: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every way in which `group` independent draws can come out, with its probability."""
    for actions in itertools.product(range(len(probabilities)), repeat=group):
        yield actions, math.prod(probabilities[a] for a in actions)


def expectation(value: Callable[[tuple[int, ...]], float], probabilities: Sequence[float], group: int) -> float:
    """E value(actions), exactly."""
    return math.fsum(chance * value(actions) for actions, chance in outcomes(probabilities, group))


def bernoulli(p: float) -> tuple[float, float]:
    """Two actions; action 1 is the success, with probability p = sigmoid(θ) and score r − p."""
    return 1 - p, p


def gradient(advantage: Callable[[list[float]], list[float]], p: float, group: int) -> float:
    """E[(1/G) Σ A_i s_i] for the Bernoulli policy, s = r − p being d log π / dθ."""

    def estimate(rewards: tuple[int, ...]) -> float:
        advantages = advantage([float(r) for r in rewards])
        return math.fsum(a * (r - p) for a, r in zip(advantages, rewards, strict=True)) / group

    return expectation(estimate, bernoulli(p), group)


def binomial(value: Callable[[int], float], p: float, group: int) -> float:
    """E value(K), K ~ Bin(group, p)."""
    return math.fsum(math.comb(group, k) * p**k * (1 - p) ** (group - k) * value(k) for k in range(group + 1))
