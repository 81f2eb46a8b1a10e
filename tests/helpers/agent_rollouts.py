"""Made rollouts of agents of one to three turns, a row of training for each turn, sound or with one fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grposcope.core.rollouts import Rollout
from grposcope.core.trajectories import joined
from grposcope.maths import turn_rules

GROUP, GROUPS = 6, 4


def trajectories(seed: int, retokenised: bool = False) -> list[Rollout]:
    """Joined trajectories with broadcast advantages and the weights of a mean over tokens, then rollouts.

    retokenised: the second turn's prompt has another first token of the first turn, as a template may make it.
    """
    random = np.random.default_rng(seed)
    rows: list[Rollout] = []
    for number in range(GROUPS):
        prompt = random.integers(1, 40, 5)
        counts = [1, 1, 2, 2, 3, 3]
        rewards = [random.permutation([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])[i] + 0.01 * i for i in range(GROUP)]
        for member, (turns, reward) in enumerate(zip(counts, rewards, strict=True)):
            advantage = reward - float(np.mean(rewards))
            sizes = random.integers(3, 6, turns)
            before = prompt
            for turn, size in enumerate(sizes):
                own = np.append(random.integers(1, 40, size - 1), 50)
                own_reward = reward if turn == turns - 1 else 0.0
                rows.append(Rollout(
                    where=f"group {number}, rollout {member}, turn {turn}", step=1, group=f"g{number}", named=True,
                    trajectory=f"g{number}-{member}", turn=turn, prompt_ids=before, completion_ids=own,
                    mask=np.ones(size, bool), advantages=np.array([advantage]), reward=own_reward,
                    loss_weights=np.full(size, -advantage / sizes.sum() / GROUP), anchors=(f"s{number}.{turn}",),
                ))  # fmt: skip
                observed = random.integers(1, 40, 2)
                before = np.concatenate([before, own, observed])
                if retokenised and turn == 0:
                    before[len(before) - size - 1] = 99
    made, _ = joined(rows)
    return made


def ends_masked(rows: list[Rollout]) -> list[Rollout]:
    """The last token of each turn is left out of the mask."""

    def changed(row: Rollout) -> Rollout:
        if row.written is None or row.mask is None:
            return row
        ends = np.append(row.written[:-1] & ~row.written[1:], False)
        return replace(row, mask=row.mask & ~ends)

    return [changed(row) for row in rows]


def last_turn_alone(rows: list[Rollout]) -> list[Rollout]:
    """The advantage of a trajectory stands at the tokens of its last turn, and 0 at those before it."""

    def changed(row: Rollout) -> Rollout:
        if row.turns is None or row.advantages is None:
            return row
        return replace(row, advantages=np.where(row.turns == row.turns.max(), row.advantages[-1], 0.0))

    return [changed(row) for row in rows]


def other_states(rows: list[Rollout]) -> list[Rollout]:
    """One rollout of the first group began elsewhere."""
    return [replace(rows[0], anchors=("elsewhere", *rows[0].anchors[1:])), *rows[1:]]


def weighed_by_rows(rows: list[Rollout]) -> list[Rollout]:
    """A mean over the tokens of each row, then over rows: a trajectory weighs as many times as it has turns."""
    made = []
    for row in rows:
        assert row.mask is not None
        assert row.advantages is not None
        weights = np.zeros(len(row.mask))
        turns = np.zeros(len(row.mask), int) if row.turns is None else row.turns
        for turn in range(row.pieces):
            own = (turns == turn) & row.mask
            weights[own] = -row.advantages[0] / own.sum() / 12
        made.append(replace(row, loss_weights=weights))
    return made


def baseline_by_rows(rows: list[Rollout]) -> list[Rollout]:
    """Advantages of rewards less the mean over rows of the group."""
    made = []
    for start in range(0, len(rows), GROUP):
        group = rows[start : start + GROUP]
        pieces, rewards = np.array([row.pieces for row in group]), np.array([row.reward for row in group])
        advantages = rewards - (pieces * rewards).sum() / pieces.sum()
        made += [replace(row, advantages=np.array([a])) for row, a in zip(group, advantages, strict=True)]
    return made


def with_turn_rewards(rows: list[Rollout], rule: str, seed: int = 5) -> list[Rollout]:
    """Random rewards and states of turns, and the advantages that a rule of `maths.turn_rules` makes of them.

    rule: a name, or the names of two, whose sum is taken, that of states times 0.7.
    """
    random, made = np.random.default_rng(seed), []
    names = rule.split(" + ")
    for start in range(0, len(rows), GROUP):
        group = rows[start : start + GROUP]
        rewards = np.full((GROUP, 3), np.nan)
        for place, row in enumerate(group):
            rewards[place, : row.pieces] = random.normal(size=row.pieces)
        states = np.where(np.isnan(rewards), 0, random.integers(1, 4, rewards.shape))
        states[:, 0] = 1
        advantages = sum(
            turn_rules.RULES[name](rewards) if name in turn_rules.RULES
            else 0.7 * turn_rules.STATE_RULES[name](rewards, states, 0.95)
            for name in names
        )  # fmt: skip
        for place, row in enumerate(group):
            assert row.completion_ids is not None
            turns = np.zeros(len(row.completion_ids), int) if row.turns is None else row.turns
            own = np.asarray(advantages)[place][turns]
            made.append(replace(row, turn_rewards=rewards[place, : row.pieces], advantages=own, turns=turns,
                                anchors=tuple(f"s{state}" for state in states[place, : row.pieces]),
                                reward=float(np.nansum(rewards[place])), loss_weights=None))  # fmt: skip
    return made


def compared_with_survivors(rows: list[Rollout]) -> list[Rollout]:
    """Turn rewards, each less the mean of those that still go on, summed over the remaining turns."""
    return with_turn_rewards(rows, "survivors")


def gigpo(rows: list[Rollout]) -> list[Rollout]:
    """The advantage of the rollout, and that of each step among all steps of the group in its state."""
    return with_turn_rewards(rows, "broadcast + step groups, standardized")
