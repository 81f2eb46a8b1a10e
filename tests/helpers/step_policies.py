"""Policies that write steps and decide when to stop, so small that all rollouts can be listed: what credit teaches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Credit = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""Step rewards (B, T), step ends (B, T), mask (B, T) and the group size to credit (B, T)."""

Token = tuple[str, int, float | None]
"""The decision it takes ("" for none), which way (0 or 1), and its reward if it ends a step."""


@dataclass(frozen=True)
class Listed:
    """All N rollouts of a policy: rewards, ends, mask (N, T); token_logp from logits (D,) to log π of tokens (N, T)."""

    rewards: Tensor
    ends: Tensor
    mask: Tensor
    token_logp: Callable[[Tensor], Tensor]

    def probability(self, logits: Tensor) -> Tensor:
        """Of every rollout, (N,)."""
        return self.token_logp(logits).sum(-1).exp()

    def value(self, logits: Tensor) -> Tensor:
        """J, the expected sum of step rewards."""
        return (self.probability(logits) * self.rewards.sum(-1)).sum()

    def scores(self, logits: Tensor) -> Tensor:
        """∇log π of every token, (N, T, D)."""
        return torch.func.jacrev(self.token_logp)(logits)

    def gradient(self, logits: Tensor) -> Tensor:
        """∇J (D,) by the policy-gradient identity: E[return × score]."""
        returns = self.probability(logits) * self.rewards.sum(-1)
        return torch.einsum("n,nd->d", returns, self.scores(logits).sum(1))

    def expected(self, logits: Tensor, credit: Credit, group: int, reduction: Callable[[Tensor], Tensor]) -> Tensor:
        """E Σ c A ∇log π (D,) over all groups of rollouts, with the coefficients c that a reduction has for a group."""
        chosen = torch.tensor(list(itertools.product(range(len(self.mask)), repeat=group)))
        rows = chosen.flatten()
        given = credit(self.rewards[rows], self.ends[rows], self.mask[rows], group)
        coefficients = reduction(self.mask[rows]) * len(chosen)  # the mean is over one group, not over all of them
        likely = self.probability(logits)[chosen].prod(-1).repeat_interleave(group)
        totals = torch.zeros(self.mask.shape, dtype=torch.float64)
        totals.index_add_(0, rows, coefficients * given * likely[:, None])
        return torch.einsum("nt,ntd->d", totals, self.scores(logits))


def of_choices(rollouts: list[list[Token]]) -> tuple[tuple[str, ...], Listed]:
    """Names of the decisions, each of which has one logit, and the rollouts."""
    names = tuple(dict.fromkeys(name for rollout in rollouts for name, *_ in rollout if name))
    shape = len(rollouts), max(map(len, rollouts))
    decision, sign = torch.full(shape, len(names)), torch.ones(shape).double()
    rewards, ends, mask = torch.zeros(shape).double(), torch.zeros(shape).bool(), torch.zeros(shape).bool()
    for i, rollout in enumerate(rollouts):
        for t, (name, way, reward) in enumerate(rollout):
            mask[i, t], sign[i, t] = True, 2 * way - 1
            decision[i, t] = names.index(name) if name else len(names)
            if reward is not None:
                ends[i, t], rewards[i, t] = True, reward

    def token_logp(logits: Tensor) -> Tensor:
        signed = torch.cat([logits, logits.new_zeros(1)])[decision] * sign
        return torch.nn.functional.logsigmoid(signed) * (decision < len(names))

    return names, Listed(rewards, ends, mask, token_logp)


def tree(
    depth: int, name: Callable[[str, str], str] = lambda kind, before: f"{kind} {before}"
) -> tuple[tuple[str, ...], Listed]:
    """Steps that are right (reward 1) or wrong, after each of which the policy goes on or stops, at most `depth`.

    A rollout is step, go on, step, …, stop; after the last step only stop is left. `name(kind, before)` names the logit
    of a "step" or "go" after the decisions `before`; decisions of one name share it.
    """
    done: list[list[Token]] = []
    unfinished: list[list[Token]] = [[]]
    for step in range(depth):
        grown = []
        for tokens, right in itertools.product(unfinished, (0, 1)):
            before = "".join(str(way) for _, way, _ in tokens)
            written = [*tokens, (name("step", before), right, float(right))]
            go = name("go", f"{before}{right}") if step < depth - 1 else ""
            done.append([*written, (go, 0, None)])
            grown.append([*written, (go, 1, None)])
        unfinished = grown
    return of_choices(done)


def go_on() -> Listed:
    """A step that is always right, then "go" on or stop, then a step that is "right" or not: two logits."""
    first: Token = ("", 0, 1.0)
    return of_choices([
        [first, ("go", 0, None)],
        [first, ("go", 1, None), ("right", 1, 1.0)],
        [first, ("go", 1, None), ("right", 0, 0.0)],
    ])[1]  # fmt: skip
