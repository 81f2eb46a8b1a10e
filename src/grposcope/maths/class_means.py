"""Standardized advantages (GRPO) for two-valued rewards, from class-mean blocks of the Gram.

A = (r − r̄)/(σ_K + ε) takes two values, so with K successes in a group of G, rewards apart by γ and q = K/G

    (1/G) Σ A_i s_i = a_K (s̄₊ − s̄₋),   a_K = γ q(1−q) / (σ_K + ε),   a_0 = a_G = 0

Given K, the rollouts of a class are independent draws, so a random subset of G of a prompt's n rollouts is a
draw of the group: K is hypergeometric, and E‖s̄₊‖² over subsets follows from the mean diagonal and
off-diagonal entries of the class blocks. Averages over all subsets are unbiased (complete U-statistics) for
every G up to n, dead groups included, without knowing the success rate. G beyond n would need a model of the success
rates. Method of this project; the identity for one group is that of arXiv:2606.29238.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.maths import resampling
from grposcope.maths.dead_groups import log_choose


@dataclass(frozen=True)
class ClassMeans:
    """Class-mean statistics of the Gram of P prompts, for the classes of higher and of lower reward.

    successes, sizes (P,): number of rollouts with the higher reward, and of all. gap: γ, the higher reward less the
    lower. diagonal (P, 2), off_diagonal (P, 2): mean entry of the Gram on and off its diagonal within each class,
    the higher reward first; 0 where a class has no such entry. between (P,): mean entry between the classes.
    directions (P, P): ⟨d_p, d_q⟩ with d = s̄₊ − s̄₋, 0 where a class is empty, NaN for prompts of different
    probes; None without a Gram across prompts.
    """

    successes: NDArray
    sizes: NDArray
    gap: float
    diagonal: NDArray
    off_diagonal: NDArray
    between: NDArray
    directions: NDArray | None

    def scale(self, group: int, ddof: int, eps: float) -> NDArray:
        """Scale a_K of the gradient for K = 0 … G successes, (G + 1,)."""
        q = np.arange(group + 1) / group
        deviation = self.gap * np.sqrt(q * (1 - q) * group / (group - ddof))
        live = (q > 0) & (q < 1)
        return np.where(live, self.gap * q * (1 - q) / np.where(live, deviation + eps, 1.0), 0.0)

    def chances(self, group: int) -> NDArray:
        """Hypergeometric P(K) for a random subset of `group` of each prompt's rollouts, (P, G + 1)."""
        k, successes, size = np.arange(group + 1), self.successes[:, None], self.sizes[:, None]
        logs = log_choose(successes, k) + log_choose(size - successes, group - k) - log_choose(size, group)
        return np.exp(logs)

    def second(self, group: int, ddof: int, eps: float) -> NDArray:
        """Unbiased E‖ĝ‖² for one group of each prompt, (P,)."""
        k = np.arange(1, group)
        plus = (self.diagonal[:, :1] + (k - 1) * self.off_diagonal[:, :1]) / k
        minus = (self.diagonal[:, 1:] + (group - k - 1) * self.off_diagonal[:, 1:]) / (group - k)
        squares = plus + minus - 2 * self.between[:, None]
        a, chances = self.scale(group, ddof, eps)[1:-1], self.chances(group)[:, 1:-1]
        return (chances * a**2 * squares).sum(-1)

    def first(self, group: int, ddof: int, eps: float) -> NDArray:
        """Coefficient ā_p in the unbiased expectation ā_p d_p of ĝ, its average over all subsets, (P,)."""
        return self.chances(group) @ self.scale(group, ddof, eps)

    def leave_one_out(self) -> NDArray:
        """Coefficient of d_p in the leave-one-out gradient of all rollouts of a prompt, (P,)."""
        q = self.successes / self.sizes
        return self.gap * q * (1 - q) * self.sizes / (self.sizes - 1)

    def pooled(self, group: int, weights: NDArray, ddof: int, eps: float) -> tuple[NDArray, NDArray, NDArray]:
        """E‖ĝ‖², ‖E ĝ‖² and the squared bias ‖E ĝ − E g‖² for prompt weights (k, P), each (k,)."""
        assert self.directions is not None
        first = self.first(group, ddof, eps)
        bias = first - self.leave_one_out()
        squares = [resampling.pair_mean(c[:, None] * self.directions * c[None, :], weights) for c in (first, bias)]
        return resampling.mean(self.second(group, ddof, eps), weights), squares[0], squares[1]


def class_means(
    blocks: NDArray, gram: NDArray | None, rewards: NDArray, present: NDArray, values: NDArray | None = None
) -> ClassMeans | None:
    """Class means of Gram blocks (P, G, G) and, where given, of the whole gram (P, G, P, G).

    rewards (P, G), present (P, G): which rollouts exist. values: those that rewards take, by default in this probe.
    None unless they are exactly two.
    """
    if values is None:
        values = np.unique(rewards[present])
    if len(values) != 2:
        return None
    member = np.stack([present & (rewards == values[1]), present & (rewards == values[0])])
    count = member.sum(-1).astype(float)  # (2, P)
    total = np.einsum("cpi,pij,cpj->cp", member, blocks, member)
    lengths = np.einsum("cpi,pii->cp", member, blocks)
    between = np.einsum("pi,pij,pj->p", member[0], blocks, member[1])
    means = member / np.maximum(count, 1)[..., None]
    contrast = np.where((count > 0).all(0)[:, None], means[0] - means[1], 0.0)
    return ClassMeans(
        successes=count[0].astype(int),
        sizes=present.sum(-1),
        gap=float(values[1] - values[0]),
        diagonal=(lengths / np.maximum(count, 1)).T,
        off_diagonal=((total - lengths) / np.maximum(count * (count - 1), 1)).T,
        between=between / np.maximum(count[0] * count[1], 1),
        directions=None if gram is None else across_prompts(gram, contrast),
    )


def joined(parts: Sequence[ClassMeans | None]) -> ClassMeans | None:
    """The class means of several probes as of one; None where one has none."""
    present = [moments for moments in parts if moments is not None]
    if len(present) < len(parts):
        return None
    names = ("successes", "sizes", "diagonal", "off_diagonal", "between")
    return ClassMeans(
        gap=present[0].gap,
        directions=diagonal([moments.directions for moments in present]),
        **{name: np.concatenate([getattr(moments, name) for moments in present]) for name in names},
    )


def diagonal(parts: Sequence[NDArray | None]) -> NDArray | None:
    """Square matrices (p, p) as blocks on the diagonal of one, NaN outside of them; None where one is None."""
    present = [moments for moments in parts if moments is not None]
    if len(present) < len(parts):
        return None
    ends = np.cumsum([len(moments) for moments in present])
    whole = np.full((ends[-1], ends[-1]), np.nan)
    for moments, end in zip(present, ends, strict=True):
        whole[end - len(moments) : end, end - len(moments) : end] = moments
    return whole


def across_prompts(gram: NDArray, weights: NDArray) -> NDArray:
    """⟨Σ_i w_pi s_pi, Σ_j w_qj s_qj⟩ for all prompts p, q, (P, P), from gram (P, G, P, G) and weights (P, G)."""
    return np.einsum("pi,piq->pq", weights, np.einsum("piqj,qj->piq", gram, weights))
