"""Intervals that cover, and verdicts that are right about as often as they claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.facts.learning import change, interval, wilson
from grposcope.records import Estimate


def evaluation(rng: np.random.Generator, p: float, n: int) -> Estimate:
    """Mean over n problems of 4 completions each, problems of different difficulty."""
    chances = rng.beta(3 * p, 3 * (1 - p), n) if 0 < p < 1 else np.full(n, p)
    return Estimate.mean((rng.binomial(4, chances) / 4).tolist())


@pytest.mark.parametrize(("p", "n"), [(0.3, 200), (0.9, 100), (0.5, 8), (0.05, 8), (0.0, 8), (1.0, 40)])
def test_intervals_cover(p: float, n: int) -> None:
    rng = np.random.default_rng(0)
    inside = [low <= p <= high for low, high in (interval(evaluation(rng, p, n)) for _ in range(1000))]
    assert np.mean(inside) > 0.93


def test_wilson_solves_its_equation() -> None:
    """Both ends are shares from which the observation is 1.96 standard deviations away."""
    for share, n in ((0.3, 17), (0.0, 8), (0.99, 1000)):
        for end in wilson(share, n):
            assert end in (0.0, 1.0) or abs(share - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / n))


def test_equal_policies_are_rarely_told_apart() -> None:
    rng = np.random.default_rng(1)
    verdicts = [change(evaluation(rng, 0.4, 200), evaluation(rng, 0.4, 200)).verdict for _ in range(1000)]
    assert 0.9 < verdicts.count("none") / 1000 < 0.98


def test_clear_changes_are_seen() -> None:
    assert change(Estimate(0.3, 0.02, 200), Estimate(0.8, 0.02, 200)).verdict == "up"
    assert change(Estimate(0.8, 0.02, 200), Estimate(0.3, 0.02, 200)).verdict == "down"
    assert change(Estimate(0.0, 0.0, 200), Estimate(1.0, 0.0, 200)).verdict == "up"


@pytest.mark.parametrize(("first", "last"), [((0.0, 0.0), (0.0, 0.0)), ((0.25, 0.16), (0.5, 0.19))])
def test_few_problems_cannot_tell(first: tuple[float, float], last: tuple[float, float]) -> None:
    found = change(Estimate(*first, 8), Estimate(*last, 8))
    assert found.verdict == "unknown"
    assert found.difference.flag == "8 problems are too few"


def test_without_problems_there_is_no_interval() -> None:
    assert all(math.isnan(end) for end in interval(Estimate(math.nan, math.nan, 0)))
    assert change(Estimate(math.nan, math.nan, 0), Estimate(math.nan, math.nan, 0)).verdict == "unknown"
