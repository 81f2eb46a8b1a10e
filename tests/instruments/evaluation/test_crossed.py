"""Means over problems and trainings: closed forms, published values, and how often the intervals hold what is true."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from grposcope.instruments.evaluation import crossed_means
from grposcope.instruments.evaluation.scores import _crossed_difference, _crossed_score
from grposcope.maths.pass_at_k import pass_at_k


def values(right: list[int], n: int, k: int) -> crossed_means.Array:
    return np.array([[pass_at_k(n, c, k) for c in right]])


FIRST = [4, 0, 0, 6, 6, 5, 7, 3, 7, 5, 0, 0]
SECOND = [5, 1, 1, 7, 7, 7, 8, 4, 8, 5, 1, 2]
PUBLISHED = {
    1: (0.13541666666666666, 0.018580887187830096),
    2: (0.1369047619047619, 0.04120023406177446),
    4: (0.1964285714285714, 0.08292960333597388),
}
"""passk-inference 0.3.1, `compare(FIRST, 8, SECOND, 8, ks=[1, 2, 4])`: mean difference and its standard error by k."""


@pytest.mark.parametrize("k", PUBLISHED)
def test_differences_are_those_of_a_published_implementation(k: int) -> None:
    found = _crossed_difference(values(FIRST, 8, k), values(SECOND, 8, k))
    assert (found.value, found.se) == pytest.approx(PUBLISHED[k], abs=1e-15)


def test_one_model_has_the_variance_of_a_mean_over_problems() -> None:
    rng = np.random.default_rng(0)
    y = rng.random((1, 50))
    found = _crossed_score(y)
    assert found.se == pytest.approx(y.std(ddof=1) / math.sqrt(50))
    assert found.df == 49
    assert math.isnan(found.se_trainings)


def test_with_several_trainings_the_variance_is_unbiased() -> None:
    """y = μ + a_s + b_i + e_si: the mean of 4 trainings × 30 problems varies by σa²/4 + σb²/30 + σe²/120."""
    rng = np.random.default_rng(1)
    a, b, e = 0.1, 0.2, 0.15
    true = a**2 / 4 + b**2 / 30 + e**2 / 120
    found = [
        _crossed_score(0.5 + rng.normal(0, a, (4, 1)) + rng.normal(0, b, 30) + rng.normal(0, e, (4, 30))).se ** 2
        for _ in range(4000)
    ]
    assert np.mean(found) == pytest.approx(true, rel=0.03)


def test_trainings_are_the_outer_unit() -> None:
    """More problems do not make up for few trainings."""
    rng = np.random.default_rng(2)
    by_training = np.array([[0.3], [0.4], [0.6]])
    found = [_crossed_score(np.clip(by_training + rng.normal(0, 0.05, (3, n)), 0, 1)) for n in (50, 5000)]
    assert found[1].se > 0.9 * by_training.std(ddof=1) / math.sqrt(3)
    assert all(one.df < 4 for one in found)
    assert found[1].se_trainings > 20 * found[1].se_problems


@pytest.mark.parametrize(("mean", "spread"), [(0.02, 0.3), (0.1, 2), (0.3, 0.3), (0.6, 10), (0.95, 2)])
@pytest.mark.parametrize(("problems", "n", "k"), [(30, 1, 1), (30, 8, 1), (30, 8, 4), (200, 4, 1)])
def test_intervals_hold_the_score_of_all_problems(mean: float, spread: float, problems: int, n: int, k: int) -> None:
    """Problems have chances from a beta distribution; Student's interval holds the truth in 25 % to 95 % here."""
    rng = np.random.default_rng(3)
    a, b = mean * spread, (1 - mean) * spread
    true = 1 - np.prod([(b + j) / (a + b + j) for j in range(k)])
    by_count = np.array([pass_at_k(n, c, k) for c in range(n + 1)])
    draws = 300
    held = 0
    for _ in range(draws):
        found = _crossed_score(by_count[rng.binomial(n, rng.beta(a, b, problems))][None])
        held += found.low <= true <= found.high
    assert held / draws > 0.91  # four standard errors of 300 draws below 95 % would be 0.90


@pytest.mark.parametrize(("mean", "spread"), [(0.03, 0.3), (0.3, 2), (0.9, 2)])
@pytest.mark.parametrize(("problems", "n"), [(30, 1), (30, 8), (200, 4)])
def test_intervals_of_differences_hold_and_tests_keep_their_level(
    mean: float, spread: float, problems: int, n: int
) -> None:
    rng = np.random.default_rng(4)
    draws, held, rejected = 300, 0, 0
    for _ in range(draws):
        p = rng.beta(mean * spread, (1 - mean) * spread, problems)
        one, two = (rng.binomial(n, p)[None] / n for _ in range(2))
        found = _crossed_difference(one, two)
        held += found.low <= 0 <= found.high
        rejected += found.p < 0.05
    assert held / draws > 0.91
    assert rejected / draws < 0.09


def test_arms_of_several_trainings_are_compared_with_trainings_as_units() -> None:
    """Two arms that differ by their seeds alone are told apart in 5 % of cases at most, where problems alone would be
    in most.
    """
    rng = np.random.default_rng(5)
    draws, rejected, naive = 300, 0, 0
    for _ in range(draws):
        hard = rng.normal(0.5, 0.2, 200)
        one, two = (hard + rng.normal(0, 0.1, (4, 1)) + rng.normal(0, 0.1, (4, 200)) for _ in range(2))
        rejected += _crossed_difference(one, two).p < 0.05
        naive += _crossed_difference(one.mean(0, keepdims=True), two.mean(0, keepdims=True)).p < 0.05
    assert rejected / draws < 0.09
    assert naive / draws > 0.5


@pytest.mark.parametrize(("won", "lost"), [(0, 0), (1, 0), (4, 1), (6, 0), (5, 4)])
def test_few_problems_apart_have_the_p_of_mcnemars_exact_test(won: int, lost: int) -> None:
    one = np.zeros((1, 40))
    two = np.zeros((1, 40))
    two[0, :won], one[0, won : won + lost] = 1, 1
    expected = binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert _crossed_difference(one, two).p == pytest.approx(expected)


def test_models_alike_on_every_problem_are_not_proved_equal() -> None:
    """Agresti and Min: 0 of 30 with half a problem each and one tie added."""
    y = np.ones((1, 30)) * (np.arange(30) % 2)
    found = _crossed_difference(y, y)
    se = math.sqrt(1 / 32 / 32)
    assert (found.value, found.se, found.p) == (0, 0, 1)
    assert (found.low, found.high) == pytest.approx((-2.0452296 * se, 2.0452296 * se), abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_score_at_its_end_has_wilsons_interval(value: float) -> None:
    found = _crossed_score(np.full((1, 30), value))
    t = 2.0452296
    assert found.se == 0
    assert found.high - found.low == pytest.approx(t**2 / (30 + t**2), abs=1e-6)


def test_a_detectable_difference_is_found_in_four_of_five_evaluations() -> None:
    rng = np.random.default_rng(6)
    spread, problems = 0.3, 100
    least = _crossed_difference(np.zeros((1, problems)), rng.normal(0, spread, (1, problems))).detectable
    assert least == pytest.approx(spread / 10 * 2.83, rel=0.2)
    exact = spread / 10 * (1.98422 + 0.84523)  # quantiles of Student's distribution, 99 degrees of freedom
    found = [
        _crossed_difference(np.zeros((1, problems)), exact + rng.normal(0, spread, (1, problems))).p < 0.05
        for _ in range(2000)
    ]
    assert np.mean(found) == pytest.approx(0.8, abs=0.035)


@pytest.mark.parametrize("problems", [0, 1])
def test_one_problem_tells_nothing(problems: int) -> None:
    found = _crossed_score(np.full((1, problems), 0.5))
    assert math.isnan(found.se)
    assert math.isnan(found.low)
    assert math.isnan(_crossed_difference(np.zeros((1, problems)), np.ones((1, problems))).p)
