"""Credit from merged rollouts: loops over rollouts, and the expected gradient over every group of a listed policy."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.credit.prefix import _prefix as prefix
from grposcope.lab.credit.state import _state as state
from grposcope.lab.objectives import advantages

A, B, END, PAD = 1, 2, 0, 0
Credit = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""tokens, step ends, mask (B, T) and rewards (P, G) to credit (B, T)."""


def texts(longest: int) -> list[tuple[int, ...]]:
    """All completions in A and B that end with END or at `longest` tokens."""
    done: list[tuple[int, ...]] = []
    open_ = [()]
    for _ in range(longest):
        done += [(*text, END) for text in open_]
        open_ = [(*text, token) for text in open_ for token in (A, B)]
    return done + open_


class Listed:
    """All completions of a policy with one distribution over (END, A, B) per context."""

    def __init__(self, longest: int, context: Callable[[tuple[int, ...]], object], reward: Callable[..., float]):
        self.texts = texts(longest)
        shape = len(self.texts), longest
        self.tokens, self.mask = torch.full(shape, PAD), torch.zeros(shape, dtype=torch.bool)
        self.place = torch.zeros(shape, dtype=torch.long)
        known: dict[object, int] = {}
        for i, text in enumerate(self.texts):
            for t, token in enumerate(text):
                self.tokens[i, t], self.mask[i, t] = token, True
                self.place[i, t] = known.setdefault(context(text[:t]), len(known))
        self.contexts = len(known)
        self.rewards = torch.tensor([reward(text) for text in self.texts], dtype=torch.float64)

    def token_logp(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)[self.place, self.tokens] * self.mask

    def gradient(self, logits: Tensor) -> Tensor:
        """Of the expected reward, by automatic differentiation."""
        leaf = logits.clone().requires_grad_()
        value = (self.token_logp(leaf).sum(-1).exp() * self.rewards).sum()
        return torch.autograd.grad(value, leaf)[0]

    def expected(self, logits: Tensor, credit: Credit, group: int) -> Tensor:
        """E (1/G) Σ_i Σ_t A_t ∇log π over all groups."""
        chosen = torch.tensor(list(itertools.product(range(len(self.texts)), repeat=group)))
        likely = self.token_logp(logits).sum(-1).exp()[chosen].prod(-1)
        rows = chosen.flatten()
        given = credit(self.tokens[rows], self.mask[rows], self.mask[rows], self.rewards[chosen])
        totals = torch.zeros(self.mask.shape, dtype=torch.float64)
        totals.index_add_(0, rows, given * likely.repeat_interleave(group)[:, None] / group)
        scores = torch.func.jacrev(self.token_logp)(logits)
        return torch.einsum("nt,ntcv->cv", totals, scores)


def of_prefix(tokens: Tensor, ends: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
    return prefix(tokens, mask, rewards)


def text_reward(text: tuple[int, ...]) -> float:
    return float(sum((3 * t + token) * (t + 1) for t, token in enumerate(text)) % 5)


def logits_of(contexts: int) -> Tensor:
    return torch.randn(contexts, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("group", [2, 3])
def test_merged_prefixes_leave_the_gradient_unbiased(group: int) -> None:
    listed = Listed(3, lambda text: text, text_reward)
    logits = logits_of(listed.contexts)
    truth = listed.gradient(logits)
    torch.testing.assert_close(listed.expected(logits, of_prefix, group), truth, rtol=1e-11, atol=1e-12)


def test_with_the_rollout_itself_among_those_before_it_is_biased() -> None:
    def with_itself(tokens: Tensor, ends: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
        left = prefix(tokens, mask, rewards)
        root = (advantages.leave_one_out(rewards) - advantages.centered(rewards)).reshape(-1, 1)
        return left - root * mask

    listed = Listed(2, lambda text: text, text_reward)
    logits = logits_of(listed.contexts)
    assert float((listed.expected(logits, with_itself, 2) - listed.gradient(logits)).abs().max()) > 1e-3


@pytest.mark.parametrize("group", [2, 3])
def test_merged_states_are_unbiased_where_the_last_step_tells_all(group: int) -> None:
    """Every token is a step; policy and reward see the last token and how many there are."""
    timed = Listed(3, lambda text: (len(text), text[-1:]), lambda text: float((3 * len(text) + text[-1]) % 4))
    logits = logits_of(timed.contexts)

    def told_apart_by_time(tokens: Tensor, ends: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
        return state(tokens + 10 * torch.arange(3), ends, mask, rewards)

    truth = timed.gradient(logits)
    torch.testing.assert_close(timed.expected(logits, told_apart_by_time, group), truth, rtol=1e-11, atol=1e-12)


def test_merged_states_are_biased_where_the_policy_remembers_more() -> None:
    listed = Listed(3, lambda text: text, text_reward)
    logits = logits_of(listed.contexts)
    assert float((listed.expected(logits, state, 2) - listed.gradient(logits)).abs().max()) > 1e-3


def slow_prefix(tokens: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
    group, out = rewards.shape[-1], torch.zeros(mask.shape, dtype=torch.float64)
    written = [row[keep].tolist() for row, keep in zip(tokens, mask, strict=True)]
    for i, own in enumerate(written):
        prompt = i // group
        rows = range(prompt * group, (prompt + 1) * group)
        reward = {j: float(rewards[prompt, j % group]) for j in rows}
        baseline = 0.0
        for t in range(len(own)):
            others = [reward[j] for j in rows if j != i and written[j][:t] == own[:t] and len(written[j]) >= t]
            baseline = sum(others) / len(others) if others else baseline
            here = [reward[j] for j in rows if written[j][: t + 1] == own[: t + 1]]
            out[i, t] = sum(here) / len(here) - baseline
    return out


def test_merged_prefixes_against_the_loop() -> None:
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 3, (12, 6), generator=random)
    mask = torch.arange(6) < torch.randint(1, 7, (12, 1), generator=random)
    rewards = torch.rand(3, 4, generator=random, dtype=torch.float64)
    torch.testing.assert_close(prefix(tokens, mask, rewards), slow_prefix(tokens, mask, rewards), rtol=0, atol=1e-12)


def test_rollouts_that_share_nothing_have_the_advantage_against_the_others() -> None:
    tokens = torch.arange(12).reshape(4, 3)
    rewards = torch.tensor([[0.0, 1.0, 2.0, 5.0]]).double()
    expected = advantages.leave_one_out(rewards).reshape(-1, 1).expand(4, 3)
    mask = torch.ones(4, 3, dtype=torch.bool)
    torch.testing.assert_close(prefix(tokens, mask, rewards), expected)
    ends = torch.zeros_like(mask)
    torch.testing.assert_close(state(tokens, ends, mask, rewards), expected)


def test_a_dead_group_gets_exactly_nothing() -> None:
    tokens, mask = torch.randint(1, 3, (6, 5), generator=torch.Generator().manual_seed(1)), torch.ones(6, 5).bool()
    rewards = torch.full((2, 3), 0.1).double()
    assert not prefix(tokens, mask, rewards).any()
    assert not state(tokens, mask, mask, rewards).any()


def test_prompts_are_never_merged() -> None:
    tokens, mask = torch.ones(4, 2, dtype=torch.long), torch.ones(4, 2).bool()
    rewards = torch.tensor([[0.0, 1.0], [3.0, 9.0]]).double()
    both = prefix(tokens, mask, rewards)
    torch.testing.assert_close(both[:2], prefix(tokens[:2], mask[:2], rewards[:1]))
    torch.testing.assert_close(
        state(tokens, mask, mask, rewards)[2:], state(tokens[2:], mask[2:], mask[2:], rewards[1:])
    )


def test_a_group_of_one_is_refused() -> None:
    one = torch.ones(2, 3, dtype=torch.long)
    with pytest.raises(UserError, match="groups of 2"):
        prefix(one, one.bool(), torch.ones(2, 1).double())
