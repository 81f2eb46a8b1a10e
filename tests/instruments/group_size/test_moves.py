"""Whether the group size of a run moves: pools of made-up probes, sizes that fit a step, and why it stays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.instruments.gradient.probe_record import ProbeGram
from grposcope.instruments.group_size import moves, planning
from grposcope.instruments.group_size.moves import GroupMove
from grposcope.maths import moments


def pool(
    group: int, prompts: int = 6, probes: int = 6, differing: float = 1.0, width: int = 8, seed: int = 0
) -> list[ProbeGram]:
    """Probes with rewards 0 and 1, of prompts whose gradients share a direction and differ as told."""
    random = np.random.default_rng(seed)
    shared, made = random.normal(size=width), []
    for _ in range(probes):
        own = shared + differing * random.normal(size=(prompts, width))
        scores = random.normal(size=(prompts, group, width))
        rewards = (np.einsum("pgd,pd->pg", scores, own) > 0).astype(float)
        flat = scores.reshape(-1, width)
        made.append(ProbeGram(flat @ flat.T, rewards, np.zeros(rewards.shape, bool)))
    return made


def together(files: list[ProbeGram]) -> moments.Moments:
    return moments.from_grams([(file.gram, file.rewards) for file in files], replicates=1)


def decided(files: list[ProbeGram], used: int, rollouts: int = 128) -> GroupMove:
    return moves.of_pool(files, used, moves.sizes(rollouts))


def test_a_group_that_is_too_large_moves_towards_the_best() -> None:
    files = pool(group=32, differing=2.0)
    move = decided(files, 32)
    plan = planning.optimal_group(together(files), groups=())
    assert (move.moves, move.reason, move.best) == (True, "", plan.integer)
    assert plan.integer <= move.group < 32
    low, high = move.interval
    assert moves.SAVES < low < move.saving < high


@pytest.mark.slow
def test_the_saving_is_the_quotient_of_the_errors() -> None:
    files = pool(group=32, differing=2.0)
    move, pooled = decided(files, 32), together(files).pooled
    quotient = planning.cost_mse(pooled, 32, 0.0, 1.0)[0] / planning.cost_mse(pooled, move.group, 0.0, 1.0)[0]
    assert move.saving == pytest.approx(quotient, rel=1e-12)


def test_an_interval_that_reaches_the_least_saving_moves_nothing() -> None:
    move = decided(pool(group=16, probes=3, differing=0.3), 16)
    assert not move.moves
    assert move.interval[0] <= moves.SAVES
    assert f"({move.interval[0]:.3g} to" in move.reason


def test_groups_that_are_too_small_grow_where_prompts_are_alike() -> None:
    files = pool(group=4, prompts=40, probes=8, differing=0.0, width=40)
    up = decided(files, 4)
    assert up.group > 4
    assert up.interval[0] > moves.SAVES


@pytest.mark.parametrize(
    ("files", "used", "says"),
    [
        (pool(group=32, probes=1), 32, "too few informative groups"),
        (pool(group=2), 2, "need 4 rollouts per prompt"),
        (pool(group=32, prompts=1), 32, "without entries across prompts"),
    ],
)
def test_nothing_moves_where_the_planner_tells_nothing(files: list[ProbeGram], used: int, says: str) -> None:
    move = decided(files, used)
    assert not move.moves
    assert says in move.reason
    assert math.isnan(move.saving)


def test_draws_that_are_not_independent_move_nothing() -> None:
    files = pool(group=32, differing=2.0)
    shifted = [ProbeGram(one.gram + 5.0, one.rewards, one.truncated) for one in files]  # a direction that all share
    assert "no independent draws" in decided(shifted, 32).reason


def test_rewards_of_many_values_move_too() -> None:
    files = pool(group=32, differing=2.0)
    random = np.random.default_rng(1)
    many = [ProbeGram(one.gram, one.rewards + random.random(one.rewards.shape) / 10, one.truncated) for one in files]
    assert decided(many, 32).moves


def test_no_size_that_divides_the_rollouts_lies_on_the_way() -> None:
    move = decided(pool(group=31, differing=2.0), 31, rollouts=62)
    assert not move.moves
    assert move.reason == f"no size between 31 and {move.best} divides the rollouts of a step"


@pytest.mark.parametrize(
    ("rollouts", "minibatches", "problems", "expected"),
    [
        (64, 1, math.inf, [2, 4, 8, 16, 32]),
        (64, 4, math.inf, [2, 4, 8, 16]),
        (64, 1, 10, [8, 16, 32]),
        (62, 1, math.inf, [2, 31]),
        (2, 1, math.inf, []),
    ],
)
def test_sizes_leave_two_prompts_that_minibatches_divide(
    rollouts: int, minibatches: int, problems: float, expected: list[int]
) -> None:
    assert moves.sizes(rollouts, minibatches, problems) == expected


def test_what_lies_on_the_way_includes_the_best_and_not_the_size_of_now() -> None:
    assert moves._towards(32, 4, [2, 4, 8, 16, 32]) == [4, 8, 16]
    assert moves._towards(4, 12, [2, 4, 8, 16]) == [8]
    assert moves._towards(8, 8, [2, 4, 8, 16]) == []
