"""The optimal draw and two stages by exact enumeration: unbiased where claimed, and by how much the others are not."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from allocators.norms import Norms
from allocators.policies import Optimal, second_stage

from grposcope.lab.allocation.beta import Rates

P = np.array([0.05, 0.3, 0.5, 0.9])
"""True rates of four problems with two answers each; the gradient of problem x is v_x e_x, the score (r − p_x) e_x."""
RATES = Rates(np.array([0.5, 2.0, 3.0, 8.0]), np.array([20.0, 3.0, 3.0, 0.8]))
"""What is believed of them, which need not be true."""
TRUE = P * (1 - P) / len(P)
"""The gradient of the mean success rate."""


def leave_one_out(k: int, group: int) -> float:
    """The gradient along e_x of a group with k successes, (1/G) Σ A_i s_i."""
    return k * (group - k) / (group * (group - 1))


@cache
def mean_gradient(p: float, group: int) -> float:
    """Its expectation, over all outcomes of the group."""
    return sum(
        math.prod(p if r else 1 - p for r in outcome) * leave_one_out(sum(outcome), group)
        for outcome in itertools.product((0, 1), repeat=group)
    )


def expectation(starts: int, way: Optimal) -> np.ndarray:
    """E of the batch's gradient, over every outcome of every group and the random start of the draw, (problems,)."""
    total = np.zeros(len(P))
    for u in (np.arange(starts) + 0.5) / starts:
        drawn = way.groups(RATES, BUDGET, 8, float(u))
        for x, group, weight in zip(drawn.candidates, drawn.sizes, drawn.weights, strict=True):
            total[x] += weight / len(drawn.candidates) * mean_gradient(P[x], int(group))
    return total / starts


BUDGET = 24
WAY = Optimal(largest=8, norms=Norms(separation=1.0))


@pytest.mark.parametrize("sizes", ["own", "one", "given"])
@pytest.mark.slow
def test_the_optimal_draw_is_unbiased_over_outcomes_and_draws(sizes: str) -> None:
    assert expectation(4000, replace(WAY, sizes=sizes)) == pytest.approx(TRUE, rel=3e-3)


@pytest.mark.slow
def test_without_weights_problems_count_by_how_often_they_are_drawn() -> None:
    found = expectation(4000, replace(WAY, weighted=False)) / TRUE
    assert found.max() > 1.3 * found.min()
    assert found[2] > found[0]  # the middling one counts more than the hard one


def test_sizes_differ_within_a_batch_and_the_budget_is_kept_in_expectation() -> None:
    drawn = [WAY.groups(RATES, BUDGET, 8, float(u)) for u in np.arange(0.0005, 1, 1e-3)]
    assert len({int(g) for one in drawn for g in one.sizes}) > 1
    assert np.mean([one.sizes.sum() for one in drawn]) == pytest.approx(24, abs=4)
    assert {len(one.candidates) for one in drawn} == {drawn[0].passed}
    assert max(one.weights.max() for one in drawn) <= 5 + 1e-9


def pooled(p: float, group: int, first: int = 2) -> float:
    """Factor on a problem's gradient when the screening rollouts, if mixed, are trained on with the further ones."""
    total = 0.0
    for outcome in itertools.product((0, 1), repeat=group):
        if 0 < sum(outcome[:first]) < first:
            total += math.prod(p if r else 1 - p for r in outcome) * leave_one_out(sum(outcome), group)
    return total / (p * (1 - p))


def unpooled(p: float, group: int, first: int = 2) -> float:
    """The same when only the further rollouts are trained on."""
    mixed = sum(
        math.prod(p if r else 1 - p for r in outcome)
        for outcome in itertools.product((0, 1), repeat=first)
        if 0 < sum(outcome) < first
    )
    return mixed * mean_gradient(p, group - first) / (p * (1 - p))


def test_two_stage_pooled_is_biased_and_unpooled_weighs_by_the_chance_of_a_mixed_screening() -> None:
    assert pooled(0.05, 8) == pytest.approx(0.30, abs=0.005)
    assert pooled(0.5, 8) == pytest.approx(0.52, abs=0.005)
    for p in (0.05, 0.3, 0.5):
        assert unpooled(p, 8) == pytest.approx(2 * p * (1 - p))
    assert pooled(0.05, 8) / pooled(0.5, 8) != pytest.approx(unpooled(0.05, 8) / unpooled(0.5, 8), rel=0.5)


def test_the_second_stage_shares_what_is_left_among_mixed_groups() -> None:
    mixed = np.array([True, False, True, True, False])
    assert second_stage(mixed, 20, 32).tolist() == [7, 0, 7, 6, 0]
    assert second_stage(mixed, 20, 5).tolist() == [5, 0, 5, 5, 0]
    assert second_stage(mixed, 5, 32).tolist() == [3, 0, 2, 0, 0]  # never a single rollout
    assert second_stage(~mixed & mixed, 20, 32).tolist() == [0] * 5


def test_the_promised_share_of_live_groups_comes_true_if_the_forecast_is_right() -> None:
    rng = np.random.default_rng(0)
    drawn = WAY.groups(RATES, BUDGET, 8, 0.3)
    live = []
    for _ in range(20_000):
        p = rng.beta(RATES.a, RATES.b)[drawn.candidates]
        k = rng.binomial(drawn.sizes, p)
        live.append(np.mean((k > 0) & (k < drawn.sizes)))
    assert np.mean(live) == pytest.approx(drawn.live, abs=0.01)
