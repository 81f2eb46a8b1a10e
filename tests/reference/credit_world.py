"""A world in which the error of every credit is known: prompts, steps, a decision to stop, a reward at the end.

A rollout takes up to `DEPTH` steps, each right or wrong, and after each goes on or stops; the reward is 1 if two steps
or more were right. Every prefix has a logit of its own, and prompts differ in their logits, so that all rollouts, all
values and all groups of a prompt can be listed. Credit is (n, G, T) for n groups of rollouts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEPTH = 3
Credit = Callable[[NDArray, NDArray], NDArray]
"""Values of the prefixes of each group's prompt (n, B) and rows (n, G) to credit (n, G, T)."""


@dataclass(frozen=True)
class RolloutBatch:
    """All N rollouts. decision (N, T): number of the logit, -1 for none; way (N, T): 0 or 1; reward (N,); mask (N, T).

    after, before (N, T): number of the boundary after and before the segment of each token, B boundaries in all; 0 is
    the prompt. final (B,): boundaries at the end of a rollout, whose value is the reward.
    """

    decision: NDArray
    way: NDArray
    reward: NDArray
    mask: NDArray
    after: NDArray
    before: NDArray
    final: NDArray

    @property
    def decisions(self) -> int:
        """Number of logits D."""
        return int(self.decision.max()) + 1


def listed() -> RolloutBatch:
    """All rollouts: step, go on, step, …, stop; after the last step nothing is left to decide."""
    rows = []
    for steps in range(1, DEPTH + 1):
        for rights in itertools.product((0, 1), repeat=steps):
            tokens: list[tuple[str, int]] = []
            for k, right in enumerate(rights):
                told = "".join(map(str, rights[:k]))
                if k:
                    tokens.append((f"go {told}", 1))
                tokens.append((f"step {told}", right))
            if steps < DEPTH:
                tokens.append((f"go {''.join(map(str, rights))}", 0))
            rows.append((rights, tokens))
    names = sorted({name for _, tokens in rows for name, _ in tokens})
    shape = len(rows), max(len(tokens) for _, tokens in rows)
    decision, way = np.full(shape, -1), np.zeros(shape)
    after, before = np.zeros(shape, int), np.zeros(shape, int)
    numbers: dict[object, int] = {"": 0}
    final = {0: False}
    for i, (rights, tokens) in enumerate(rows):
        here, start, k = 0, 0, 0
        for t, (name, value) in enumerate(tokens):
            decision[i, t], way[i, t] = names.index(name), value
            k += name.startswith("step")
            last = t == len(tokens) - 1
            if name.startswith("step") or last:
                key: object = ("end", i) if last else rights[:k]
                there = numbers.setdefault(key, len(numbers))
                final[there] = last
                before[i, start : t + 1], after[i, start : t + 1] = here, there
                here, start = there, t + 1
    reward = np.array([float(sum(rights) >= 2) for rights, _ in rows])
    ends = np.array([final[b] for b in range(len(numbers))])
    return RolloutBatch(decision, way, reward, decision >= 0, after, before, ends)


class World:
    """Prompts drawn from `kinds` equally likely ones with random logits (X, D)."""

    def __init__(self, kinds: int = 10, seed: int = 0, spread: float = 0.6):
        self.rollouts = listed()
        rng = np.random.default_rng(seed)
        common = rng.normal(0, 0.5, self.rollouts.decisions)
        logits = common + rng.normal(0, spread, (kinds, self.rollouts.decisions))
        chance = 1 / (1 + np.exp(-logits))  # (X, D)
        r = self.rollouts
        chosen = np.where(r.mask, chance[:, r.decision], 0.0)  # (X, N, T)
        self.chances = np.where(r.mask, np.where(r.way == 1, chosen, 1 - chosen), 1.0).prod(-1)
        self.scores = np.zeros((kinds, *r.mask.shape, r.decisions))  # (X, N, T, D)
        for i, t in np.argwhere(r.mask):
            self.scores[:, i, t, r.decision[i, t]] = r.way[i, t] - chosen[:, i, t]
        self.values = np.zeros((kinds, len(r.final)))  # (X, B)
        for b in range(len(r.final)):
            through = (r.after == b).any(-1) | (r.before == b).any(-1)
            self.values[:, b] = (self.chances * r.reward * through).sum(-1) / (self.chances * through).sum(-1)
        self.gradients = np.einsum("xn,n,xntd->xd", self.chances, r.reward, self.scores)
        self.gradient = self.gradients.mean(0)

    def of_groups(self, kinds: NDArray, rows: NDArray, credit: NDArray) -> NDArray:
        """(1/G) Σ A ∇log π (n, D) of groups: the kind of each (n,), their rollouts (n, G), their credit (n, G, T)."""
        return np.einsum("ngt,ngtd->nd", credit, self.scores[kinds[:, None], rows]) / rows.shape[1]

    def exact(self, credit: Credit, group: int) -> tuple[NDArray, float]:
        """E[ĝ_p | x] (X, D), and E‖ĝ_p‖² over all prompts and all groups; values are exact."""
        rows = np.array(list(itertools.product(range(len(self.rollouts.reward)), repeat=group)))
        means, second = np.zeros(self.gradients.shape), 0.0
        for x in range(len(self.chances)):
            kinds = np.full(len(rows), x)
            given = self.of_groups(kinds, rows, credit(self.values[kinds], rows))
            chance = self.chances[x][rows].prod(-1)
            means[x] = chance @ given
            second += float(chance @ (given**2).sum(-1)) / len(self.chances)
        return means, second

    def noise(self, credit: Credit, group: int) -> float:
        """E‖ĝ_p − E[ĝ_p | rollouts]‖² with one continuation per boundary, of a credit that is linear in the values."""
        rows = np.array(list(itertools.product(range(len(self.rollouts.reward)), repeat=group)))
        total = 0.0
        for x in range(len(self.chances)):
            kinds = np.full(len(rows), x)
            chance = self.chances[x][rows].prod(-1)
            none = self.of_groups(kinds, rows, credit(np.zeros((len(rows), len(self.rollouts.final))), rows))
            for b in np.flatnonzero(~self.rollouts.final):
                one = np.zeros((len(rows), len(self.rollouts.final)))
                one[:, b] = 1
                moved = self.of_groups(kinds, rows, credit(one, rows)) - none
                spread = self.values[x, b] * (1 - self.values[x, b])
                total += spread * float(chance @ (moved**2).sum(-1)) / len(self.chances)
        return total

    def drawn(self, prompts: int, group: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
        """Kinds (P,) of the prompts and rollouts (P, G)."""
        kinds = rng.integers(len(self.chances), size=prompts)
        return kinds, np.stack([rng.choice(len(self.rollouts.reward), group, p=self.chances[x]) for x in kinds])

    def sampled(self, kinds: NDArray, count: int, rng: np.random.Generator) -> NDArray:
        """Values (P, B) from `count` continuations of every boundary, independent between boundaries."""
        drawn = rng.binomial(count, self.values[kinds]) / count
        return np.where(self.rollouts.final, self.values[kinds], drawn)

    # credit, (n, G, T) from values (n, B) and rows (n, G)

    def outcome(self, values: NDArray, rows: NDArray) -> NDArray:
        """r − mean of the others."""
        r = self.rollouts.reward[rows]
        apart = (r - r.mean(-1, keepdims=True)) * rows.shape[1] / (rows.shape[1] - 1)
        return apart[..., None] * self.rollouts.mask[rows]

    def steps(self, values: NDArray, rows: NDArray) -> NDArray:
        """V after the segment − V before it."""
        at = np.arange(len(rows))[:, None, None]
        return (values[at, self.rollouts.after[rows]] - values[at, self.rollouts.before[rows]]) * self.rollouts.mask[
            rows
        ]

    def continued(self, values: NDArray, rows: NDArray) -> NDArray:
        """The same, with the mean reward of the other rollouts as the value of the prompt."""
        at = np.arange(len(rows))[:, None, None]
        r = self.rollouts.reward[rows]
        start = (r.sum(-1, keepdims=True) - r) / (rows.shape[1] - 1)
        before = self.rollouts.before[rows]
        value = np.where(before == 0, start[..., None], values[at, before])
        return (values[at, self.rollouts.after[rows]] - value) * self.rollouts.mask[rows]

    def late(self, values: NDArray, rows: NDArray) -> NDArray:
        """Outcome credit weighted by the place of the token: biased in direction and in scale."""
        return self.outcome(values, rows) * (0.2 + np.arange(self.rollouts.mask.shape[1]))

    def twice(self, values: NDArray, rows: NDArray) -> NDArray:
        """Outcome credit at another scale."""
        return 2.5 * self.outcome(values, rows)
