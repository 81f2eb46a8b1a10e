"""Fieller's interval of the best group size, and which groups decide whether to answer."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from places import ROOT

from grposcope.instruments.group_size import planning
from grposcope.instruments.group_size.planning import _interval
from grposcope.maths import confidence, moments

sys.path.insert(0, str(ROOT / "benchmarks"))
import plan_coverage  # the generators with known truth
from plan_worlds import FAMILIES


def test_informative_is_two_successes_and_two_failures() -> None:
    rewards = np.array([np.arange(8) < k for k in range(9)], float)
    found = moments.informative(rewards, np.ones(rewards.shape, bool))
    assert found.tolist() == [2 <= k <= 6 for k in range(9)]
    assert (moments.informative(7 - 3 * rewards, rewards > -1) == found).all()  # scale, shift and sign


def test_graded_rewards_must_not_hang_on_one_rollout() -> None:
    rewards = np.array([[0, 0.1, 0, 0.1, 1.0], [0, 0.2, 0.4, 0.6, 0.8], [0, 0, 1, 1, 0], [0.1] * 5])
    assert moments.informative(rewards, np.ones(rewards.shape, bool)).tolist() == [False, True, True, False]
    few = np.array([[1.0, 0, 1, 0, np.nan], [1, 0, 1, np.nan, np.nan]])
    assert moments.informative(few, ~np.isnan(few)).tolist() == [True, False]


@pytest.mark.parametrize("costs", [(0.0, 1.0), (0.7, 1.0), (3.0, 0.5)])
def test_the_interval_holds_the_estimate_and_ends_where_the_contrast_is_told_from_zero(
    costs: tuple[float, float],
) -> None:
    scores, rewards = FAMILIES["classes"](0.5, np.random.default_rng(0)).draw(96, 8, np.random.default_rng(1))
    found = moments.from_scores(scores, rewards)
    low, high = _interval(found, *costs)
    assert low < planning.optimum(found.pooled, *costs)[0] < high

    def contrast(s: moments.Statistics, group: float) -> np.ndarray:
        gain = costs[1] * s.prompt_variance * (group - 1) ** 2
        return gain - costs[0] * (s.sigma1 - s.delta) * (1 - 1 / group) ** 2 - sum(costs) * s.delta

    t = confidence.quantile(int(found.informative.sum()))
    for end, side, sign in ((low, 0, -1), (high, 1, 1)):
        values = confidence.pseudo_values(contrast(found.pooled, end), contrast(found.jackknife, end))
        assert confidence.sides(values[None])[side][0] == pytest.approx(sign * t, rel=0.02)
        there = found.estimate(lambda s, end=end: contrast(s, end))  # type: ignore[misc]
        assert values.mean() == pytest.approx(there.value)
        assert values.std(ddof=1) / math.sqrt(len(values)) == pytest.approx(there.se)


def test_without_skewness_a_side_is_students_t() -> None:
    symmetric = np.array([-3.0, -1.0, 1.0, 3.0]) + 0.7
    t = symmetric.mean() / (symmetric.std(ddof=1) / 2)
    assert confidence.sides(symmetric[None])[1][0] == pytest.approx(t)
    assert confidence.sides(np.zeros((1, 5)))[1][0] == 0


def test_means_of_skewed_values_are_rarely_missed() -> None:
    """Student's upper limit of the mean of lognormal values is too low in one sample of ten."""
    rng = np.random.default_rng(6)
    values = rng.lognormal(0.0, 1.0, (2000, 64)) - math.exp(0.5)
    reach = confidence.quantile(64)
    below, above = confidence.sides(values)
    student = values.mean(-1) / values.std(-1, ddof=1) * 8
    assert np.mean(student < -reach) > 0.07
    assert np.mean(below < -reach) < 0.025
    assert np.mean(above > reach) < 0.04


def test_scores_and_their_gram_give_the_same_moments() -> None:
    scores, rewards = FAMILIES["softmax"](0.4, np.random.default_rng(2)).draw(20, 5, np.random.default_rng(3))
    flat = scores.reshape(100, -1)
    one, other = moments.from_scores(scores, rewards), moments.from_gram(flat @ flat.T, rewards)
    for name in ("sigma1", "delta", "prompt_variance", "mean2"):
        assert getattr(one, name).value == pytest.approx(getattr(other, name).value)
        assert getattr(one, name).se == pytest.approx(getattr(other, name).se)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_worlds_truth_is_the_average_over_probes(family: str) -> None:
    world, rng = FAMILIES[family](0.4, np.random.default_rng(4)), np.random.default_rng(5)
    probes = [moments.from_scores(*world.draw(256, 6, rng), replicates=20) for _ in range(8)]
    ratio = [np.mean([getattr(p, name).value for p in probes]) for name in ("delta", "prompt_variance")]
    assert 1 + math.sqrt(ratio[0] / ratio[1]) == pytest.approx(world.best(), rel=0.15)


@pytest.mark.slow
def test_answers_miss_rarely_and_hard_tasks_get_none() -> None:
    """A small part of benchmarks/plan_coverage.py, with fixed seeds."""
    hard = [plan_coverage.cell(family, 0.025, 64, 8, 25, 7) for family in ("classes", "softmax")]
    middling = [plan_coverage.cell(family, 0.4, 64, 8, 40, 7) for family in ("softmax", "opposed", "mixture")]
    assert max(c["misses"] for c in hard) <= 0.05
    assert np.mean([c["percentile_answers"] for c in hard]) > np.mean([c["answers"] for c in hard])
    assert np.mean([c["misses"] for c in middling]) <= 0.06
    assert min(c["ends"] for c in middling) >= 0.8
    uneven = plan_coverage.cell("uneven", 0.5, 128, 8, 40, 7)
    assert uneven["misses"] <= 0.1
    alike = plan_coverage.cell("alike", 0.5, 64, 8, 25, 7)
    assert alike["answers"] >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "heavy"])
def test_coverage_at_every_mean_reward(family: str) -> None:
    for mean in (0.01, 0.05, 0.2, 0.8, 0.95):
        cells = [plan_coverage.cell(family, mean, p, g, 40, 11) for p in (16, 64, 128) for g in (4, 8, 16)]
        assert np.mean([c["misses"] for c in cells]) <= 0.05
