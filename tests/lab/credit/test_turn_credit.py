"""Credit for turns: unbiased rules have the gradient as their mean over all groups of a toy, and reach the tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import turn_toy

from grposcope.core.errors import UserError
from grposcope.lab.credit import chosen, per_token, turns
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.sampling.turn_sampler import sample_turns
from grposcope.lab.tasks.base import Problem, Task, Turn
from grposcope.maths import turn_rules

Table = Callable[[np.ndarray, np.ndarray], np.ndarray]


def batch(rewards: np.ndarray, states: np.ndarray, values: np.ndarray | None = None) -> RolloutBatch:
    """One group whose turns are two tokens each, and one of the environment between them."""
    group, width = rewards.shape
    taken = np.repeat(~np.isnan(rewards), 3, 1)
    drawn = taken & (np.arange(3 * width) % 3 < 2)
    number = np.where(taken, np.arange(3 * width) // 3, -1)
    paid = np.where(np.arange(3 * width) % 3 == 1, np.repeat(np.nan_to_num(rewards), 3, 1), 0.0)
    ids = torch.zeros(group, 3 * width, dtype=torch.long)
    annotations = {"turns": torch.tensor(number), "step_rewards": torch.tensor(paid),
                   "states": torch.tensor(np.repeat(states, 3, 1))}  # fmt: skip
    if values is not None:
        annotations["turn_values"] = torch.tensor(np.repeat(values, 3, 1))
    return RolloutBatch(
        ids, ids.bool(), ids, torch.tensor(drawn), torch.zeros(ids.shape), torch.zeros(ids.shape),
        torch.zeros(group).bool(), torch.tensor(np.nansum(rewards, 1))[None], token_annotations=annotations,
    )  # fmt: skip


def by_source(text: str) -> Table:
    """The advantages (G, H) that a source gives the turns of a group."""

    def rule(rewards: np.ndarray, states: np.ndarray) -> np.ndarray:
        rollouts = batch(rewards, states)
        given = per_token(text, recipes.RLOO, rollouts, torch.float64).numpy()
        assert (given[:, 2::3] == 0).all()  # nothing on what the environment said
        np.testing.assert_array_equal(given[:, 0::3], given[:, 1::3])
        return np.where(np.isnan(rewards), np.nan, given[:, 0::3])

    return rule


@pytest.mark.slow
def test_fair_rules_have_the_gradient_as_their_mean() -> None:
    for rule in turns.FAIR:
        np.testing.assert_allclose(
            turn_toy.expected(by_source(f"turns:rule={rule}"), 2), turn_toy.gradient(), atol=1e-9
        )


QUICK = ("own", "survivors")
"""Rules whose trees are small; the others are enumerated in CI."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=() if rule in QUICK else pytest.mark.slow) for rule in turns.BIASED]
)
def test_rules_of_trainers_are_biased(rule: str) -> None:
    """No multiple of the gradient is their mean."""
    update, g = turn_toy.expected(by_source(f"trainer_turns:rule={rule}"), 2), turn_toy.gradient()
    assert update @ g / np.sqrt((update @ update) * (g @ g)) < 0.99995


@pytest.mark.parametrize("rule", [turn_rules.less_values, turn_rules.branches])
def test_values_of_states_do_not_bias(rule: Table) -> None:
    """Credit is linear in continuations, whose mean is the value of the history, so that this stands for any K."""
    known = {history(each, turn): 0.0 for each in turn_toy.ROLLOUTS for turn in range(turn_toy.TURNS)}
    chance = dict.fromkeys(known, 0.0)
    for each in turn_toy.ROLLOUTS:
        for turn in range(int((~np.isnan(each.rewards)).sum())):
            known[history(each, turn)] += each.chance * float(np.nansum(each.rewards[turn:]))
            chance[history(each, turn)] += each.chance

    def with_values(members: list[turn_toy.ToyRollout]) -> np.ndarray:
        rewards = np.array([each.rewards for each in members])
        values = np.full(rewards.shape, np.nan)
        for row, each in enumerate(members):
            for turn in range(1, int((~np.isnan(each.rewards)).sum())):
                values[row, turn] = known[history(each, turn)] / chance[history(each, turn)]
        return rule(rewards, values)

    np.testing.assert_allclose(turn_toy.expected_of(with_values, 2), turn_toy.gradient(), atol=1e-9)


def history(each: turn_toy.ToyRollout, turn: int) -> tuple[float, ...]:
    """What came before a turn, and the coin of the episode, which continuations from a copied state share."""
    return (each.coin, *each.states[: turn + 1].tolist(), *each.rewards[:turn].tolist())


def test_values_reach_the_tokens() -> None:
    rewards, values = np.array([[0.1, 1.0], [0.5, np.nan]]), np.array([[np.nan, 0.4], [np.nan, np.nan]])
    rollouts = batch(rewards, np.ones((2, 2), int), values)
    given = per_token("turn_values:form=branches,k=1", recipes.RLOO, rollouts, torch.float64).numpy()
    np.testing.assert_allclose(given[:, [0, 3]], [[0.1 + 0.4 - 0.5, 1.0 - 0.4], [0.5 - 1.1, 0.0]], atol=1e-12)
    given = per_token("turn_values:form=value,k=1", recipes.RLOO, rollouts, torch.float64).numpy()
    np.testing.assert_allclose(given[:, [0, 3]], [[1.1 - 0.5, 1.0 - 0.4], [0.5 - 1.1, 0.0]], atol=1e-12)


class Twice(Task):
    """Two turns, of which the second is paid 2 whatever is said; a copy of a state counts."""

    name, max_turns, turn_end, max_tokens = "twice", 2, "7", 40

    def __init__(self) -> None:
        self.copies: list[int] = []

    def start(self, problem: Problem, seed: int) -> dict[str, int]:
        return {"turn": 0}

    def step(self, problem: Problem, state: dict[str, int], said: str) -> Turn:
        state["turn"] += 1
        return Turn("ab", 2.0 * (state["turn"] == 2), state["turn"] == 2)

    def branch(self, state: dict[str, int], seed: int) -> dict[str, int]:
        self.copies.append(seed)
        return dict(state)


def test_continuations_from_states(policy: Policy) -> None:
    """They leave the rollouts as they are, are counted, and know what a second turn is paid where it ends in time."""
    task, problems = Twice(), [Problem("one", "1+2=")]
    plain, drawn = (
        sample_turns(
            policy, task, problems, 16, DrawSettings(Sampling(40), turn_values=k), torch.Generator().manual_seed(1)
        )
        for k in (0, 3)
    )
    assert torch.equal(plain.completions.tokens, drawn.completions.tokens)
    assert plain.rewards == drawn.rewards
    second = [row for row, rewards in enumerate(drawn.turn_rewards) if len(rewards) == 2]
    assert second
    assert [len(values) for values in drawn.values] == [len(rewards) - 1 for rewards in drawn.turn_rewards]
    assert all(0 <= value <= 2 for values in drawn.values for value in values)
    assert {round(1.5 * value, 9) for values in drawn.values for value in values} <= {0.0, 1.0, 2.0, 3.0}
    assert any(value > 0 for values in drawn.values for value in values)
    assert drawn.further >= 3 * len(second)
    assert task.copies.count(0) == len(second)
    assert len({*task.copies}) == 3 * len(second) + 1
    batched = collect(policy, task, problems, recipes.GRPO, Sampling(40), (1, 16), 0, 0, turn_values=3)
    assert batched.tokens > int(batched.rollouts.mask.sum())
    assert "turn_values" in batched.rollouts.token_annotations


def test_what_is_missing_is_said_in_a_line() -> None:
    bare = replace(batch(np.ones((2, 1)), np.ones((2, 1), int)), token_annotations={})
    with pytest.raises(UserError, match="needs rollouts of a task with turns, such as hidden_table"):
        per_token("turns", recipes.RLOO, bare)
    with pytest.raises(UserError, match="these rollouts have none"):
        per_token("turn_values", recipes.RLOO, batch(np.ones((2, 1)), np.ones((2, 1), int)))
    with pytest.raises(UserError, match="use a group of 2"):
        per_token("turns", recipes.RLOO, batch(np.ones((1, 1)), np.ones((1, 1), int)))
    assert "biased" in chosen("trainer_turns:rule=gigpo").source.warning
