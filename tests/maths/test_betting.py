"""Bets against a mean: fair by enumeration, less where only a mean is known, and Ville's bound by exact enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from grposcope.instruments.autopilot.monitors import _log_factors_of_mean
from grposcope.maths import betting


@pytest.mark.parametrize("limit", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("mean", [0.0, 0.1, 0.3])
def test_bets_are_fair_at_the_limit_and_lose_above_it(limit: float, mean: float) -> None:
    """Exactly, over all outcomes of four values 0 and 1 whose mean is the limit, or lies above it."""
    chance = min(1.0, limit + mean)
    total = np.zeros(len(betting.FRACTIONS))
    for outcome in itertools.product((0.0, 1.0), repeat=4):
        ones = sum(outcome)
        weight = chance**ones * (1 - chance) ** (4 - ones)
        total += weight * np.exp(betting._log_factors(np.array(outcome), limit))
    if mean == 0:
        assert total == pytest.approx(1.0)
    else:
        assert (total < 1).all()


def test_a_mean_alone_gives_less_evidence_and_the_same_for_zeros_and_ones() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        values, limit = draw.random(12), draw.uniform(0.05, 0.95)
        exact = betting._log_factors(values, limit)
        assert (_log_factors_of_mean(float(values.mean()), 12, limit) <= exact + 1e-12).all()
        ones = (values < 0.4).astype(float)
        of_mean = _log_factors_of_mean(float(ones.mean()), 12, limit)
        assert of_mean == pytest.approx(betting._log_factors(ones, limit))


def test_the_average_reaches_a_bound_as_rarely_as_ville_says() -> None:
    """Over all 2¹¹ courses of values whose mean is just the limit: the mean of the capital is 1 in the end, and the
    chance that it ever reached 1/α at most α."""
    limit, alpha = 0.5, 0.2
    reached, ended = 0, 0.0
    for course in itertools.product((0.0, 1.0), repeat=11):
        bets, best = betting.Bets(), 0.0
        for value in course:
            bets.take(np.array([value]), limit)
            best = max(best, bets.log_e)
        reached += best >= -math.log(alpha)
        ended += math.exp(bets.log_e) / 2**11
    assert 0 < reached / 2**11 <= alpha
    assert ended == pytest.approx(1.0)


def test_a_late_fall_has_not_to_win_back_what_was_lost_before() -> None:
    bets, early = betting.Bets(), betting.Bets()
    for _ in range(500):
        bets.take(np.full(16, 0.9), 0.5)
    assert bets.log_e > -math.log(600)
    for _ in range(8):
        bets.take(np.full(16, 0.2), 0.5)
        early.take(np.full(16, 0.2), 0.5)
    assert early.log_e - 2 * math.log(510) < bets.log_e < early.log_e


def test_shares_of_all_hypotheses_sum_to_one() -> None:
    assert sum(betting.share(k) for k in range(1, 100_000)) == pytest.approx(1 - 1 / 100_000)


def test_an_average_in_logarithms_does_not_overflow() -> None:
    assert betting.log_average(np.array([1000.0, 990.0])) == pytest.approx(1000 + math.log((1 + math.exp(-10)) / 2))
    assert betting.log_average(np.array([-np.inf, -np.inf])) == -np.inf
