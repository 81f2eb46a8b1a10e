"""Credit of trees: the expected gradient over every tree of a listed policy, and which row branched from which."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import prod

import pytest
import torch
from branching import END, A, B, Grown, Policy, Text, trees
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.credit import per_token
from grposcope.lab.credit import trees as credit_trees
from grposcope.lab.credit.trees import _tree as tree
from grposcope.lab.credit.trees import filling, generated, origins
from grposcope.lab.objectives import advantages, recipes

Credit = Callable[[Tensor, Tensor, Tensor, tuple[int, ...]], Tensor]


def reward(text: Text) -> float:
    return float(sum((3 * t + token) * (t + 1) for t, token in enumerate(text)) % 5)


def after_every_token(text: Text) -> bool:
    return bool(text)


def after_a(text: Text) -> bool:
    """A step is closed by the token A."""
    return text[-1:] == (A,)


CASES = {
    "two levels": (Policy((END, A, B), 3, reward), (2, 2), after_every_token),
    "three levels": (Policy((END, A), 3, reward), (2, 2, 2), after_every_token),
    "three branches": (Policy((END, A), 3, reward), (2, 3), after_every_token),
    "at steps": (Policy((END, A, B), 3, reward), (2, 2), after_a),
}


def arrays(grown: list[Grown], longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Levels, mask (N·G, T) and rewards (N, G) of trees."""
    leaves = [leaf for one in grown for leaf in one.leaves]
    levels, mask = torch.zeros(len(leaves), longest).long(), torch.zeros(len(leaves), longest).bool()
    for i, leaf in enumerate(leaves):
        levels[i, : len(leaf.text)], mask[i, : len(leaf.text)] = torch.tensor(leaf.levels), True
    rewards = torch.tensor([reward(leaf.text) for leaf in leaves], dtype=torch.float64)
    return levels, mask, rewards.unflatten(0, (len(grown), -1))


def expected(case: str, credit: Credit = tree) -> tuple[Tensor, Tensor]:
    """E (1/G) Σ_leaves Σ_t A_t ∇log π over all trees, and ∇J."""
    policy, widths, forks = CASES[case]
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(len(policy.contexts), len(policy.alphabet), generator=random, dtype=torch.float64)
    logp, scores = policy.token_logp(logits), policy.scores(logits)
    grown = trees(policy, widths, forks)
    likely = torch.stack([torch.stack([logp[pair] for pair in one.drawn]).sum() for one in grown]).exp()
    assert float(likely.sum()) == pytest.approx(1.0, abs=1e-12)
    given = credit(*arrays(grown, policy.longest), widths).unflatten(0, (len(grown), -1))
    totals = dict.fromkeys(scores, 0.0)
    for one, weight, rows in zip(grown, likely.tolist(), given.tolist(), strict=True):
        for leaf, row in zip(one.leaves, rows, strict=True):
            for t, token in enumerate(leaf.text):
                totals[leaf.text[:t], token] += weight * row[t] / len(one.leaves)
    found = sum(total * scores[pair] for pair, total in totals.items())
    return torch.as_tensor(found), policy.gradient(logits)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_unbiased(case: str) -> None:
    found, truth = expected(case)
    assert float(truth.abs().max()) > 0.1
    torch.testing.assert_close(found, truth, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
def test_centring_on_the_group_afterwards_biases_it() -> None:
    def centred(levels: Tensor, mask: Tensor, rewards: Tensor, widths: tuple[int, ...]) -> Tensor:
        given = tree(levels, mask, rewards, widths).unflatten(0, (-1, rewards.shape[1]))
        there = mask.unflatten(0, (-1, rewards.shape[1]))
        return ((given - given.sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1)) * there).flatten(0, 1)

    found, truth = expected("two levels", centred)
    assert float((found - truth).abs().max()) > 1e-2


@pytest.mark.slow
def test_leaf_rewards_against_the_group_mean_alone_are_biased_for_shared_tokens() -> None:
    """The scored leaf shares its beginning with its siblings, so that their mean is no baseline."""

    def outcome(levels: Tensor, mask: Tensor, rewards: Tensor, widths: tuple[int, ...]) -> Tensor:
        return advantages.leave_one_out(rewards).reshape(-1, 1) * mask

    found, truth = expected("two levels", outcome)
    assert float((found - truth).abs().max()) > 1e-2


def grown_by_hand() -> tuple[Tensor, Tensor, Tensor]:
    """One prompt with two trees of 2 × 2: the first branch of the second tree ends at once."""
    levels = torch.tensor([[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 1]])
    mask = torch.ones(8, 3).bool()
    mask[4:6, 1:] = False
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.0]], dtype=torch.float64)
    return levels, mask, rewards


def test_credit_by_hand() -> None:
    """Branches of level 0 earn 1/2, 0, 1/2, 1: each less the mean of the other three; leaves less their one sibling."""
    first = [0.5 - 1.5 / 3, 0 - 2.0 / 3, 0.5 - 1.5 / 3, 1 - 1.0 / 3]
    second = [1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    expected = torch.tensor([[first[i // 2], first[i // 2], second[i]] for i in range(8)], dtype=torch.float64)
    levels, mask, rewards = grown_by_hand()
    torch.testing.assert_close(tree(levels, mask, rewards, (2, 2)), expected * mask)


def test_equal_rewards_give_exactly_nothing() -> None:
    levels, mask, rewards = grown_by_hand()
    assert not tree(levels, mask, torch.full_like(rewards, 0.1), (2, 2)).any()


def test_origins_by_hand() -> None:
    levels, mask, _ = grown_by_hand()
    parent, shared = origins(levels, mask, 8, (2, 2))
    assert parent.tolist() == [-1, 0, -1, 2, -1, 4, -1, 6]
    assert shared.tolist() == [0, 2, 0, 2, 0, 1, 0, 2]
    assert generated(levels, mask, 8, (2, 2)) == 3 + 1 + 3 + 1 + 1 + 3 + 1


@pytest.mark.parametrize("case", CASES)
def test_tokens_that_count_are_those_that_were_drawn(case: str) -> None:
    policy, widths, forks = CASES[case]
    grown = trees(policy, widths, forks)[::7]
    levels, mask, _ = arrays(grown, policy.longest)
    group = prod(widths)
    assert generated(levels, mask, group, widths) == sum(len(one.drawn) for one in grown)
    parent, shared = origins(levels, mask, group, widths)
    leaves = [leaf for one in grown for leaf in one.leaves]
    for i, (of, many) in enumerate(zip(parent.tolist(), shared.tolist(), strict=True)):
        assert (of < 0) == (many == 0)
        assert leaves[i].text[:many] == leaves[i - i % group + max(of, 0)].text[:many]


@pytest.mark.parametrize(("widths", "group"), [((2, 2, 2), 4), ((2, 2), 6), ((16,), 8)])
def test_groups_that_trees_do_not_fill_are_refused(widths: tuple[int, ...], group: int) -> None:
    with pytest.raises(UserError, match=f"{prod(widths)} leaves, and the group of {group} is not a multiple"):
        filling(widths, group)


def test_several_trees_are_siblings_at_the_prompt() -> None:
    assert filling((2, 3), 12) == (4, 3)


def test_independent_rollouts_are_refused() -> None:
    from cases import CASES as ROLLOUTS

    with pytest.raises(UserError, match="needs rollouts that branch"):
        per_token("tree", recipes.GRPO, ROLLOUTS[0].rollouts)


def test_an_objective_takes_it() -> None:
    from cases import CASES as ROLLOUTS

    rollouts = ROLLOUTS[0].rollouts
    group = rollouts.groups[1]
    levels = torch.zeros_like(rollouts.tokens)
    given = per_token(f"tree:widths={group}", recipes.GRPO, rollouts.annotated(levels=levels), torch.float64)
    one_out = advantages.leave_one_out(rollouts.rewards).reshape(-1, 1) * rollouts.mask
    torch.testing.assert_close(given, one_out)


def test_a_listed_policy_lists_all() -> None:
    policy, widths, forks = CASES["three levels"]
    assert len(trees(policy, widths, forks)) == (1 + (1 + 2**2) ** 2) ** 2
    assert len(list(itertools.chain(policy.texts()))) == 4
    assert credit_trees.filling(widths, 8) == widths
