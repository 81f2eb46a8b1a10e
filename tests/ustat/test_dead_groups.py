"""Predictions of dead groups against exact expectations over all outcomes, and known distributions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from grposcope.ustat import dead_groups


def binomials(p: float, group: int) -> np.ndarray:
    return np.array([math.comb(group, k) * p**k * (1 - p) ** (group - k) for k in range(group + 1)])


def beta_binomials(a: float, b: float, group: int) -> np.ndarray:
    def beta(x: float, y: float) -> float:
        return math.exp(math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y))

    return np.array([math.comb(group, k) * beta(k + a, group - k + b) / beta(a, b) for k in range(group + 1)])


@pytest.mark.parametrize(("p", "group", "size"), [(0.3, 6, 2), (0.3, 6, 4), (0.85, 5, 5), (0.5, 4, 3)])
def test_subsets_is_unbiased(p: float, group: int, size: int) -> None:
    """Its mean over all 2^G outcomes is the chance that `size` rollouts agree."""
    mean = 0.0
    for outcome in itertools.product((0, 1), repeat=group):
        k = sum(outcome)
        counts = np.bincount([k], minlength=group + 1)
        mean += p**k * (1 - p) ** (group - k) * dead_groups.subsets(counts, size).value
    assert mean == pytest.approx(p**size + (1 - p) ** size, abs=1e-12)


@pytest.mark.parametrize(("a", "b", "group"), [(0.4, 0.7, 8), (2.0, 5.0, 6), (30.0, 10.0, 4), (0.1, 0.1, 16)])
@pytest.mark.parametrize("size", [None, 2, 12])
def test_prediction_is_exact_for_beta_prompts(a: float, b: float, group: int, size: int | None) -> None:
    """From the exact histogram of a very large sample, for the group size at hand and for others."""
    counts = np.round(beta_binomials(a, b, group) * 1e12).astype(np.int64)
    wanted = size or group
    exact = beta_binomials(a, b, wanted)
    assert dead_groups.predicted(counts, size).value == pytest.approx(exact[0] + exact[-1], abs=1e-9)


def test_prediction_for_prompts_that_are_alike() -> None:
    counts = np.round(binomials(0.3, 8) * 1e12).astype(np.int64)
    exact = 0.3**8 + 0.7**8
    assert dead_groups.predicted(counts).value == pytest.approx(exact, abs=1e-6)
    assert dead_groups.alike(counts).value == pytest.approx(exact, abs=1e-9)


def test_two_rollouts_predict_themselves() -> None:
    counts = np.array([40, 25, 35])
    assert dead_groups.predicted(counts).value == pytest.approx(dead_groups.observed(counts).value, abs=1e-12)


def test_plugging_in_is_too_large_and_the_prediction_is_not() -> None:
    """Samples of 200 groups: the mean of the prediction is near the truth, that of the naive average is not."""
    rng, group = np.random.default_rng(0), 8
    exact = beta_binomials(2, 3, group)
    truth = exact[0] + exact[-1]
    samples = rng.multinomial(200, exact, size=2000)
    found = np.array([dead_groups.predicted(s).value for s in samples])
    naive = np.array([dead_groups.plugged_in(s) for s in samples])
    assert abs(found.mean() - truth) < 4 * found.std() / np.sqrt(2000) + 0.002
    assert naive.mean() - truth > 0.03


def test_standard_errors_are_those_of_repetition() -> None:
    rng, group = np.random.default_rng(1), 8
    samples = rng.multinomial(300, beta_binomials(0.8, 1.2, group), size=1500)
    for statistic in (
        dead_groups.predicted,
        dead_groups.alike,
        dead_groups.observed,
        lambda c: dead_groups.subsets(c, 4),
    ):
        found = [statistic(s) for s in samples]
        spread = np.std([f.value for f in found])
        assert np.mean([f.se for f in found]) == pytest.approx(spread, rel=0.1)


def test_prompts_that_are_alike_are_the_lower_bound() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        counts = rng.multinomial(10**9, beta_binomials(*rng.uniform(0.2, 5, 2), 6))
        assert dead_groups.alike(counts).value <= dead_groups.predicted(counts).value + 1e-9
        assert dead_groups.alike(counts).value <= dead_groups.observed(counts).value + 1e-4


@pytest.mark.parametrize("counts", [[50, 0, 0, 0, 0], [0, 0, 0, 0, 50], [25, 0, 0, 0, 25]])
def test_groups_that_are_all_dead(counts: list[int]) -> None:
    found = dead_groups.predicted(np.array(counts))
    assert found.value == pytest.approx(1.0, abs=1e-9)
    assert found.se == pytest.approx(0.0, abs=1e-6)


def test_what_cannot_be_told() -> None:
    assert math.isnan(dead_groups.predicted(np.array([3, 4])).value)
    assert dead_groups.predicted(np.array([3, 4])).flag
    assert math.isnan(dead_groups.predicted(np.array([1, 0, 0])).value)
    assert math.isnan(dead_groups.observed(np.zeros(5, int)).value)
