"""Running products of likelihood ratios: expectations by enumeration, and the largest value so far by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from grposcope.maths import evalues

NULL = np.array([0.5, 0.3, 0.2])
OTHERS = np.array([[0.2, 0.3, 0.5], [0.5, 0.5, 0.0], [0.4, 0.35, 0.25]])


def increments(units: tuple[int, ...]) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(OTHERS[:, list(units)] / NULL[list(units)])


def test_the_mixture_has_expectation_one_after_every_unit() -> None:
    total = np.zeros(3)
    for units in itertools.product(range(3), repeat=3):
        total += NULL[list(units)].prod() * np.exp(evalues.mixture(increments(units)).log_e)
    assert total == pytest.approx(np.ones(3))


def test_p_is_at_most_alpha_as_often_as_alpha() -> None:
    random = np.random.default_rng(0)
    p = np.array([evalues.mixture(increments(tuple(random.choice(3, 60, p=NULL)))).p for _ in range(2000)])
    for alpha in (0.05, 0.2):
        assert (p <= alpha).mean() <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / len(p))
    assert (p <= 0.2).mean() > 0.02


def test_weights_nothing_and_impossible_units() -> None:
    two = np.log(np.array([[2.0, 2.0], [1.0, 1.0]]))
    assert evalues.mixture(two, np.array([0.25, 0.75])).log_e == pytest.approx(np.log([1.25, 1.75]))
    assert evalues.mixture(two).best == 0
    assert evalues.mixture(np.empty((0, 4))).p == 1.0
    ruled_out = evalues.mixture(np.array([[3.0, -np.inf, 5.0]]))
    assert ruled_out.log_e[0] == 3.0
    assert (ruled_out.log_e[1:] == -np.inf).all()
    assert ruled_out.p == pytest.approx(math.exp(-3))  # what was seen before stays seen


def test_began_is_where_the_last_rise_starts() -> None:
    assert evalues.began(np.array([0.1, -2.0, -1.0, 1.0, 2.0])) == 3
    assert evalues.began(np.array([1.0, math.nan, 1.0])) == 0
    assert evalues.began(np.empty(0)) == -1
