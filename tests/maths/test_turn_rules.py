"""Rules of the advantages of turns against all groups of a toy: which have the gradient as their mean, exactly."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import turn_toy

from grposcope.maths import turn_rules

STOP, GO = 0, 1
LOGITS = np.array([0.3, -0.7, 0.5])
"""Of going on at the first turn, and of the better action at the second and the third, which alone go on."""


def rollouts() -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Every rollout of at most three turns: probability, turn rewards (3,), and the score of each turn (3, 3).

    At each of the first two turns the policy stops or goes on; rewards depend on the whole past and are noisy.
    """
    made = []
    for noise in (0, 1):
        for actions in ((STOP,), (GO, STOP), (GO, GO, STOP), (GO, GO, GO)):
            chance, rewards, scores = 0.5, np.full(3, np.nan), np.zeros((3, 3))
            for turn, action in enumerate(actions):
                go = 1 / (1 + math.exp(-LOGITS[turn]))
                chance *= go if action == GO else 1 - go
                scores[turn, turn] = (1 - go) if action == GO else -go
                rewards[turn] = 0.4 * action - 0.3 * turn + 0.8 * noise * (turn == 1) + 0.5 * (action == STOP)
            made.append((chance, rewards, scores))
    return made


def gradient() -> np.ndarray:
    """∇E Σ_h r_h, as the mean of return × score."""
    return np.asarray(sum(p * np.nansum(r) * s.sum(0) for p, r, s in rollouts()))


def expected(rule: str, group: int) -> np.ndarray:
    """The mean over all groups of Σ_ih A_ih s_ih / G."""
    total = np.zeros(3)
    for members in itertools.product(rollouts(), repeat=group):
        advantages = turn_rules.RULES[rule](np.array([r for _, r, _ in members]))
        update = sum(np.nansum(a[:, None] * s, 0) for a, (_, _, s) in zip(advantages, members, strict=True))
        total += math.prod(p for p, *_ in members) * np.asarray(update) / group
    return total


def test_the_toy_is_a_distribution() -> None:
    assert sum(p for p, *_ in rollouts()) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(sum(p * s.sum(0) for p, _, s in rollouts()), 0, atol=1e-12)


@pytest.mark.parametrize("rule", [name for name in turn_rules.UNBIASED if name in turn_rules.RULES])
@pytest.mark.parametrize("group", [2, 3])
def test_rules_without_bias(rule: str, group: int) -> None:
    np.testing.assert_allclose(expected(rule, group), (group - 1) / group * gradient(), atol=1e-9)


@pytest.mark.parametrize("rule", [name for name in turn_rules.RULES if name not in turn_rules.UNBIASED])
def test_means_over_those_that_are_there_are_biased(rule: str) -> None:
    """No multiple of the gradient is their mean; and the survivors' rule does not approach it in larger groups."""
    g = gradient()
    for group in (2, 3):
        update = expected(rule, group)
        cosine = update @ g / math.sqrt((update @ update) * (g @ g))
        assert cosine < 0.9995


def test_the_toy_of_states_is_a_distribution() -> None:
    assert sum(each.chance for each in turn_toy.ROLLOUTS) == pytest.approx(1, abs=1e-12)
    scores = sum(each.chance * each.scores for each in turn_toy.ROLLOUTS)
    np.testing.assert_allclose(np.asarray(scores), 0, atol=1e-12)


@pytest.mark.parametrize("group", [2, 3])
def test_step_groups_of_others_have_no_bias(group: int) -> None:
    """Although histories behind equal states differ, states are revisited, and some are reached once."""
    np.testing.assert_allclose(turn_toy.expected(turn_rules.step_groups, group), turn_toy.gradient(), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [name for name in turn_rules.STATE_RULES if name not in turn_rules.UNBIASED])
def test_step_groups_with_oneself_are_biased(rule: str) -> None:
    g = turn_toy.gradient()
    update = turn_toy.expected(lambda r, s: turn_rules.STATE_RULES[rule](r, s, 1.0), 3)
    assert update @ g / math.sqrt((update @ update) * (g @ g)) < 0.998
    assert rule in turn_rules.BIAS


def test_every_biased_rule_says_what_its_bias_is() -> None:
    assert {*turn_rules.BIAS, *turn_rules.UNBIASED} == {*turn_rules.RULES, *turn_rules.STATE_RULES}


def test_a_discount_counts_later_turns_less() -> None:
    np.testing.assert_allclose(turn_rules.returns(np.array([[1.0, 2.0, 4.0]]), 0.5), [[3.0, 4.0, 4.0]])


def test_where_all_take_all_turns_the_rules_of_turns_agree() -> None:
    rewards = np.random.default_rng(0).normal(size=(5, 3))
    wanted = turn_rules._to_go(rewards)
    for rule in (turn_rules._to_go_of_present, turn_rules._survivors):
        np.testing.assert_allclose(rule(rewards), wanted, atol=1e-12)


def test_of_a_final_reward_to_go_is_broadcast() -> None:
    rewards = np.array([[0.0, 1.0], [0.0, 0.0], [0.0, 3.0]])
    np.testing.assert_allclose(turn_rules._to_go(rewards), turn_rules.broadcast(rewards), atol=1e-12)
