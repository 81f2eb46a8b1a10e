"""Standardized advantages (GRPO) for two-valued rewards, from class-mean blocks of the Gram.

A = (r − r̄)/(σ_K + ε) takes two values, so with K successes in a group of G, rewards apart by γ and q = K/G

    (1/G) Σ A_i s_i = a_K (s̄₊ − s̄₋),   a_K = γ q(1−q) / (σ_K + ε),   a_0 = a_G = 0

Given K the rollouts of a class are independent draws, so a random subset of G of a prompt's n rollouts is a
draw of the group: K is hypergeometric, and E‖s̄₊‖² over subsets follows from the mean diagonal and
off-diagonal entries of the class blocks. Averages over all subsets are unbiased (complete U-statistics) for
every G up to n, dead groups included, without knowing the success rate. Beyond n nothing is said: that would
need a model of the success rates. Derivation ours; the identity for one group is that of arXiv:2606.29238.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.ustat import resampling
from grposcope.ustat.dead_groups import log_choose


@dataclass(frozen=True)
class Classes:
    """Class-mean statistics of P prompts.

    successes, sizes (P,): rollouts with the higher reward, and all. gap: distance γ of the two rewards.
    same (P, 2), apart (P, 2): mean diagonal and off-diagonal entry of the Gram within each class,
    successes first; 0 where a class has none. mixed (P,): mean entry between the classes.
    directions (P, P): ⟨d_p, d_q⟩ with d = s̄₊ − s̄₋, 0 where a class is empty; None without a Gram across prompts.
    """

    successes: NDArray
    sizes: NDArray
    gap: float
    same: NDArray
    apart: NDArray
    mixed: NDArray
    directions: NDArray | None

    def scale(self, group: int, ddof: int, eps: float) -> NDArray:
        """a_K for K = 0 … G."""
        q = np.arange(group + 1) / group
        deviation = self.gap * np.sqrt(q * (1 - q) * group / (group - ddof))
        live = (q > 0) & (q < 1)
        return np.where(live, self.gap * q * (1 - q) / np.where(live, deviation + eps, 1.0), 0.0)

    def chances(self, group: int) -> NDArray:
        """P(K) for a random subset of `group` of each prompt's rollouts, (P, G + 1)."""
        k, won, size = np.arange(group + 1), self.successes[:, None], self.sizes[:, None]
        logs = log_choose(won, k) + log_choose(size - won, group - k) - log_choose(size, group)
        return np.exp(logs)

    def second(self, group: int, ddof: int, eps: float) -> NDArray:
        """Unbiased E‖ĝ‖² of one group of each prompt, (P,)."""
        k = np.arange(1, group)
        plus = (self.same[:, :1] + (k - 1) * self.apart[:, :1]) / k
        minus = (self.same[:, 1:] + (group - k - 1) * self.apart[:, 1:]) / (group - k)
        squares = plus + minus - 2 * self.mixed[:, None]
        a, chances = self.scale(group, ddof, eps)[1:-1], self.chances(group)[:, 1:-1]
        return (chances * a**2 * squares).sum(-1)

    def first(self, group: int, ddof: int, eps: float) -> NDArray:
        """Coefficient ā of d_p in the average of ĝ over all subsets, (P,): ĝ's expectation without bias."""
        return self.chances(group) @ self.scale(group, ddof, eps)

    def leave_one_out(self) -> NDArray:
        """Coefficient of d_p in the leave-one-out gradient of all rollouts, (P,)."""
        q = self.successes / self.sizes
        return self.gap * q * (1 - q) * self.sizes / (self.sizes - 1)

    def pooled(
        self, group: int, weights: NDArray, ddof: int, eps: float
    ) -> tuple[NDArray, NDArray, NDArray, NDArray, NDArray]:
        """For prompt weights (k, P): E‖ĝ‖², ‖Eĝ‖², ‖Eĝ − Eg‖², ⟨Eĝ, Eg⟩ and ‖Eg‖², each (k,)."""
        assert self.directions is not None
        ours, theirs = self.first(group, ddof, eps), self.leave_one_out()

        def product(a: NDArray, b: NDArray) -> NDArray:
            return resampling.pair_mean(a[:, None] * self.directions * b[None, :], weights)

        second = resampling.mean(self.second(group, ddof, eps), weights)
        off = ours - theirs
        return second, product(ours, ours), product(off, off), product(ours, theirs), product(theirs, theirs)


def classes_of(blocks: NDArray, gram: NDArray | None, rewards: NDArray, present: NDArray) -> Classes | None:
    """Class means of blocks (P, G, G) and gram (P, G, P, G); None unless the rewards take exactly two values."""
    values = np.unique(rewards[present])
    if len(values) != 2:
        return None
    member = np.stack([present & (rewards == values[1]), present & (rewards == values[0])])
    count = member.sum(-1).astype(float)  # (2, P)
    total = np.einsum("cpi,pij,cpj->cp", member, blocks, member)
    lengths = np.einsum("cpi,pii->cp", member, blocks)
    mixed = np.einsum("pi,pij,pj->p", member[0], blocks, member[1])
    means = member / np.maximum(count, 1)[..., None]
    contrast = np.where((count > 0).all(0)[:, None], means[0] - means[1], 0.0)
    return Classes(
        successes=count[0].astype(int),
        sizes=present.sum(-1),
        gap=float(values[1] - values[0]),
        same=(lengths / np.maximum(count, 1)).T,
        apart=((total - lengths) / np.maximum(count * (count - 1), 1)).T,
        mixed=mixed / np.maximum(count[0] * count[1], 1),
        directions=None if gram is None else across(gram, contrast),
    )


def across(gram: NDArray, weights: NDArray) -> NDArray:
    """⟨Σ_i w_pi s_pi, Σ_j w_qj s_qj⟩ for all prompts p, q: gram (P, G, P, G), weights (P, G) -> (P, P)."""
    return np.einsum("pi,piq->pq", weights, np.einsum("piqj,qj->piq", gram, weights))
