"""Planning: the optimum against a search, the curve against definitions, budgets against every P and G."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.instruments.group_size import mse, planning
from grposcope.maths import moments
from grposcope.maths.moments import Moments, Statistics
from reference import ustat_policies
from reference.ustat_policies import SmallPolicy

exact = partial(pytest.approx, rel=1e-9)


def statistics(prompt_variance: float, sigma1: float, delta: float, mean2: float = 0.0) -> Statistics:
    """Pooled statistics with these moments."""
    none = prompt_variance + mean2
    one = sigma1 / 4 + none
    values = {"none": none, "one": one, "both": delta / 2 + 2 * one - none, "mean2": mean2}
    rest = dict.fromkeys(set(Statistics.__dataclass_fields__) - set(values), 1.0)
    return Statistics(**{k: np.array([v]) for k, v in {**values, **rest}.items()})


def sampled(seed: int, prompts: int = 24, group: int = 8, shared: float = 1.0) -> Moments:
    """Moments of a probe with rewards that depend on scores."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(prompts, group, 12))
    directions = shared * rng.normal(size=12) + rng.normal(size=(prompts, 12))
    rewards = np.einsum("pgd,pd->pg", scores, directions)
    return moments.from_gram(scores.reshape(-1, 12) @ scores.reshape(-1, 12).T, rewards)


@pytest.mark.parametrize("costs", [(0.0, 1.0), (0.3, 1.0), (5.0, 0.2), (100.0, 1.0)])
@pytest.mark.parametrize("moment", [(1.0, 10.0, 40.0), (0.01, 3.0, 3.5), (2.0, 30.0, 1.0), (1.0, 1.0, 1.0)])
def test_the_optimum_is_that_of_a_fine_search(costs: tuple[float, float], moment: tuple[float, float, float]) -> None:
    v, s, d = moment
    groups = np.geomspace(1 + 1e-6, 1e5, 2_000_001)
    curve = (costs[0] + costs[1] * groups) * (v + s / groups + d / (groups * (groups - 1)))
    found = planning.optimum(statistics(v, s, d), *costs)[0]
    assert found == pytest.approx(groups[curve.argmin()], rel=1e-4)


def test_without_prompt_cost_it_is_the_closed_form_for_any_rollout_cost() -> None:
    for cost in (0.1, 1.0, 7.0):
        assert planning.optimum(statistics(0.5, 3.0, 32.0), 0.0, cost)[0] == exact(1 + math.sqrt(32 / 0.5))
    tiny = planning.optimum(statistics(0.5, 3.0, 32.0), 1e-12, 1.0)[0]
    assert tiny == pytest.approx(9.0, rel=1e-6)  # the other branch tends to it


def test_prefill_cost_asks_for_larger_groups() -> None:
    found = [planning.optimum(statistics(1.0, 10.0, 10.0), cost, 1.0)[0] for cost in (0.0, 0.5, 2.0, 10.0)]
    assert found == sorted(found)
    assert found[-1] > found[0] + 1


@pytest.mark.parametrize(("v", "d", "expected"), [(-0.1, 5.0, math.inf), (0.0, 5.0, math.inf), (1.0, -0.5, 1.0)])
def test_moments_that_are_not_positive(v: float, d: float, expected: float) -> None:
    assert planning.optimum(statistics(v, 3.0, d), 0.0, 1.0)[0] == expected
    if v < 0:
        assert planning.optimum(statistics(v, 3.0, d), 0.5, 1.0)[0] == expected
        sizes = np.array([2, 8])
        below, at = (planning.loss(statistics(spread, 3.0, d), sizes, 0.5, 1.0) for spread in (v, 0.0))
        np.testing.assert_allclose(below, at)
        assert np.isnan(planning.loss(statistics(v, -0.5, d), sizes, 0.5, 1.0)).all(), "the least error is not above 0"


@pytest.mark.parametrize("budget", [2, 4, 5])
def test_a_small_budget_may_go_into_one_group(budget: int) -> None:
    found = planning.allocate(sampled(0), budget)
    assert (found.prompts, found.group, found.cost) == (1, budget, budget)


def test_an_optimum_beyond_any_group_counts_as_infinite() -> None:
    assert planning.optimum(statistics(1e-20, 3.0, 5.0), 0.5, 1.0)[0] == math.inf
    assert planning.optimum(statistics(1e-10, 3.0, 5.0), 0.5, 1.0)[0] < 1e6


def test_an_interval_without_an_end_says_the_least_group() -> None:
    def plan(low: float, high: float) -> planning.Plan:
        return replace(planning.optimal_group(sampled(0)), interval=(low, high))

    assert [plan(low, math.inf).at_least for low in (1.0, 2.0, 2.5, 7.0)] == [0, 0, 3, 7]
    assert plan(2.5, 9.0).at_least == 0


@pytest.mark.parametrize("costs", [(0.0, 1.0), (2.0, 0.5)])
def test_the_plan_is_the_curves_minimum(costs: tuple[float, float]) -> None:
    found = sampled(0)
    plan = planning.optimal_group(found, *costs, groups=range(2, 65))
    best = min(plan.curve, key=lambda point: point.cost_mse.value)
    assert plan.integer == best.group
    assert best.loss == pytest.approx(0.0, abs=1e-12)
    assert abs(plan.continuous.value - plan.integer) < 1
    for point in plan.curve:
        error = mse.leave_one_out(found, 10, point.group).value * 10 * (costs[0] + costs[1] * point.group)
        assert point.cost_mse.value == exact(error)
        assert point.loss == exact(error / best.cost_mse.value - 1) or abs(point.loss) < 1e-12
        assert point.loss_interval[0] <= point.loss_interval[1]
    assert plan.interval[0] <= plan.continuous.value <= plan.interval[1]
    near = [p.group for p in plan.curve if p.loss <= planning.NEAR]
    assert plan.near[0] == min(near)


def test_without_spread_between_prompts_the_loss_is_against_endless_groups() -> None:
    """V_p ≤ 0 counts as 0: f(G) = Σ₁ + Δ/(G−1), least Σ₁."""
    lost = planning.loss(statistics(-0.3, 4.0, 2.0), np.array([2, 5, 101]), 0.0, 1.0)[0]
    assert lost == exact([2 / 4, 2 / 16, 2 / 400])


def test_the_optimum_does_not_depend_on_the_budget() -> None:
    found = sampled(1, prompts=40)
    plan = planning.optimal_group(found)
    assert plan.decided
    for rollouts in (40, 400, 4000):
        errors = [mse.leave_one_out(found, 1, g).value * g / rollouts for g in range(2, 40)]
        assert 2 + int(np.argmin(errors)) == plan.integer


def test_no_difference_between_prompts_is_no_answer() -> None:
    one, rng = np.random.default_rng(2).normal(size=(1, 3, 3)), np.random.default_rng(3)
    policy = SmallPolicy(np.full((1, 3), 1 / 3), one - one.mean(1, keepdims=True), np.array([[1.0, 0.0, -1.0]]))
    for _ in range(8):  # the same prompt again and again: V_p = 0, its estimate falls on either side
        answers = rng.integers(3, size=(24, 6))
        scores = policy.scores[0][answers].reshape(24 * 6, 3)
        found = moments.from_gram(scores @ scores.T, policy.rewards[0][answers], replicates=200)
        plan = planning.optimal_group(found)
        assert not plan.decided
        assert (plan.integer, plan.near, plan.curve) == (0, (0, 0), ())
        assert plan.interval[1] == math.inf
        assert math.isnan(plan.continuous.value) == (found.prompt_variance.value <= 0)
        assert plan.more_prompts > 0
        with pytest.raises(UserError, match="cannot tell the best group size"):
            planning.allocate(found, 1000)


@pytest.mark.parametrize("multiple", [1, 6, 16])
@pytest.mark.parametrize("costs", [(0.0, 1.0), (3.0, 1.0)])
def test_allocation_is_the_best_of_every_batch_that_the_budget_buys(costs: tuple[float, float], multiple: int) -> None:
    found, budget = sampled(3), 130.0
    plan = planning.allocate(found, budget, *costs, multiple)
    best = min(
        mse.leave_one_out(found, p, g).value
        for p in range(1, 66)
        for g in range(2, 131)
        if p * (costs[0] + costs[1] * g) <= budget and p * g % multiple == 0
    )
    assert plan.mse.value == exact(best)
    assert plan.prompts * plan.group % multiple == 0
    assert plan.cost <= budget
    assert plan.cost == exact(plan.prompts * (costs[0] + costs[1] * plan.group))


def enumerated_gain(policy: SmallPolicy, group: int) -> tuple[float, float]:
    """Relative error of one rollout's worth of plain and of live-only groups, and the dead share, by enumeration."""
    chance, gradient = policy.outcomes(ustat_policies.leave_one_out, group)
    rewards = [policy.rewards[x, list(chosen)] for _, x, chosen in policy.groups(group)]
    live = np.array([np.ptp(r) > 0 for r in rewards])
    dead = float(chance[~live].sum())

    def relative(chances: NDArray, vectors: NDArray) -> float:
        mean = chances @ vectors
        return float(chances @ ((vectors - mean) ** 2).sum(-1) / (mean @ mean))

    plain = relative(chance, gradient)
    kept = relative(chance[live] / (1 - dead), gradient[live]) / (
        1 - dead
    )  # 1/(1 − dead) groups are drawn per live one
    return plain / kept, dead


def test_dynamic_resampling_against_enumeration() -> None:
    policy, group = SmallPolicy.random(4, prompts=2, answers=3, binary=True), 4
    truth = policy.moments()
    exact_statistics = statistics(truth["prompt_variance"], truth["sigma1"], truth["delta"], truth["mean2"])
    found = Moments(**{**vars(sampled(0)), "pooled": exact_statistics})
    gain, dead = enumerated_gain(policy, group)
    assert 0.05 < dead < 0.9
    assert planning.resampling_gain(found, group, dead) == exact(gain)
    assert gain > 1


# What cannot be planned


def test_refusals_name_what_remains() -> None:
    rng = np.random.default_rng(5)

    def probe(prompts: int, group: int, rewards: NDArray | None = None) -> Moments:
        scores = rng.normal(size=(prompts * group, 5))
        return moments.from_gram(scores @ scores.T, rng.normal(size=(prompts, group)) if rewards is None else rewards)

    with pytest.raises(UserError, match=r"one prompt does not show.*it gives only the variance per rollout Σ₁"):
        planning.optimal_group(probe(1, 6))
    with pytest.raises(UserError, match=r"need 4 rollouts.*the probe has 3.*at G = 2 and .* at G = 3.*of 4 or more"):
        planning.optimal_group(probe(5, 3))
    with pytest.raises(UserError, match="all rewards are equal"):
        planning.optimal_group(probe(5, 4, np.ones((5, 4))))
    with pytest.raises(UserError, match="too small for one group"):
        planning.allocate(sampled(0), 1.5)
    with pytest.raises(UserError, match="cannot be a multiple of 0"):
        planning.allocate(sampled(0), 60, multiple=0)
    with pytest.raises(UserError, match="multiples of 64"):
        planning.allocate(sampled(0), 60, multiple=64)
    with pytest.raises(UserError, match="cost per rollout"):
        planning.optimal_group(probe(5, 4), rollout_cost=0)
    with pytest.raises(UserError, match="cost per prompt"):
        planning.optimal_group(probe(5, 4), prompt_cost=-1)
