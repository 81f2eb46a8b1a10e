"""A toy whose states are revisited, behind different histories, with every rollout of at most three turns listed.

A rollout begins in state 1. In a turn the policy stays in its state, moves to the other one (1 or 2), or stops; what it
does depends on the state and on the turn, and the reward of a turn on its state, its action and a coin that was thrown
before the episode.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

STAY, MOVE, STOP = range(3)
TURNS = 3
LOGITS = np.array([[0.4, -0.2, -0.5], [-0.3, 0.6, 0.1]])
"""(state, action): what is trained, and to which 0.3 × the turn is added for STOP."""


@dataclass(frozen=True)
class ToyRollout:
    """Coin, probability, rewards (H,), states (H,), scores (H, D) of a rollout; NaN, 0 and 0 on absent turns."""

    coin: int
    chance: float
    rewards: np.ndarray
    states: np.ndarray
    scores: np.ndarray


def policy(state: int, turn: int) -> np.ndarray:
    """Probabilities (3,) of the actions."""
    logits = LOGITS[state - 1] + np.array([0.0, 0.0, 0.3 * turn])
    return np.asarray(np.exp(logits) / np.exp(logits).sum())


def rollouts() -> list[ToyRollout]:
    """Every rollout."""
    made = []
    for coin in (0, 1):
        for actions in _sequences():
            state, chance = 1, 0.5
            rewards, states = np.full(TURNS, np.nan), np.zeros(TURNS, np.int64)
            scores = np.zeros((TURNS, *LOGITS.shape))
            for turn, action in enumerate(actions):
                chances = policy(state, turn)
                chance *= chances[action]
                scores[turn, state - 1] = np.eye(3)[action] - chances
                states[turn] = state
                rewards[turn] = 0.5 * state * (action == MOVE) - 0.2 * turn + 0.7 * coin * (action == STOP)
                state = 3 - state if action == MOVE else state
            made.append(ToyRollout(coin, chance, rewards, states, scores.reshape(TURNS, -1)))
    return made


def _sequences() -> list[tuple[int, ...]]:
    whole = itertools.product((STAY, MOVE, STOP), repeat=TURNS)
    return sorted({actions[: actions.index(STOP) + 1] if STOP in actions else actions for actions in whole})


ROLLOUTS = rollouts()


def gradient() -> np.ndarray:
    """∇E Σ_h r_h, as the mean of return × score."""
    return np.asarray(sum(each.chance * np.nansum(each.rewards) * each.scores.sum(0) for each in ROLLOUTS))


def expected(rule: Callable[[np.ndarray, np.ndarray], np.ndarray], group: int) -> np.ndarray:
    """The mean over all groups of Σ_ih A_ih s_ih / G, for a rule of rewards and states (G, H), whatever their order."""
    return expected_of(
        lambda members: rule(np.array([m.rewards for m in members]), np.array([m.states for m in members])), group
    )


def expected_of(rule: Callable[[list[ToyRollout]], np.ndarray], group: int) -> np.ndarray:
    """The same for a rule of rollouts."""
    total = np.zeros(LOGITS.size)
    for places in itertools.combinations_with_replacement(range(len(ROLLOUTS)), group):
        orders = math.factorial(group) / math.prod(math.factorial(places.count(each)) for each in {*places})
        members = [ROLLOUTS[place] for place in places]
        advantages = rule(members)
        update = sum(np.nan_to_num(a) @ each.scores for a, each in zip(advantages, members, strict=True))
        total += orders * math.prod(each.chance for each in members) * np.asarray(update) / group
    return total
