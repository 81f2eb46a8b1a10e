"""Slow twins of `maths.moments`: averages over pairs, triples and quadruples of rollouts, in loops."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray


def kernel(scores: NDArray, rewards: NDArray, i: int, j: int) -> NDArray:
    """h(i, j) = ½ (r_i − r_j)(s_i − s_j)."""
    return 0.5 * (rewards[i] - rewards[j]) * (scores[i] - scores[j])


def both(scores: NDArray, rewards: NDArray) -> float:
    """Mean of ⟨h(i,j), h(i,j)⟩ over ordered pairs."""
    pairs = itertools.permutations(range(len(rewards)), 2)
    return float(np.mean([kernel(scores, rewards, i, j) @ kernel(scores, rewards, i, j) for i, j in pairs]))


def one(scores: NDArray, rewards: NDArray) -> float:
    """Mean of ⟨h(i,j), h(i,k)⟩ over ordered triples."""
    triples = itertools.permutations(range(len(rewards)), 3)
    return float(np.mean([kernel(scores, rewards, i, j) @ kernel(scores, rewards, i, k) for i, j, k in triples]))


def none(scores: NDArray, rewards: NDArray) -> float:
    """Mean of ⟨h(i,j), h(k,l)⟩ over ordered quadruples."""
    fours = itertools.permutations(range(len(rewards)), 4)
    return float(np.mean([kernel(scores, rewards, i, j) @ kernel(scores, rewards, k, m) for i, j, k, m in fours]))


def from_gram(gram: NDArray, rewards: NDArray) -> tuple[float, float, float]:
    """both, one, none of one group from its Gram (G, G) alone, in loops."""
    size = len(rewards)

    def product(i: int, j: int, k: int, m: int) -> float:
        inner = gram[i, k] - gram[i, m] - gram[j, k] + gram[j, m]
        return 0.25 * (rewards[i] - rewards[j]) * (rewards[k] - rewards[m]) * inner

    pairs = [product(i, j, i, j) for i, j in itertools.permutations(range(size), 2)]
    triples = [product(i, j, i, k) for i, j, k in itertools.permutations(range(size), 3)]
    fours = [product(*four) for four in itertools.permutations(range(size), 4)]
    return float(np.mean(pairs)), float(np.mean(triples)), float(np.mean(fours))


def subsets_second_moment(scores: NDArray, rewards: NDArray, group: int, ddof: int, eps: float) -> float:
    """Mean of ‖(1/G) Σ A_i s_i‖² over all subsets of `group` rollouts, A standardized within the subset."""
    out = []
    for chosen in itertools.combinations(range(len(rewards)), group):
        picked = rewards[list(chosen)]
        if np.ptp(picked) == 0:
            out.append(0.0)
            continue
        advantages = (picked - picked.mean()) / (picked.std(ddof=ddof) + eps)
        out.append(float(np.sum((advantages @ scores[list(chosen)] / group) ** 2)))
    return float(np.mean(out))
