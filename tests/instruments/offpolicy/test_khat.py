"""Pareto k̂ finds the shape of tails that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.instruments.offpolicy.answer import _trusted
from grposcope.instruments.offpolicy.khat import LEAST, khat


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9])
def test_shape_of_pareto_weights(shape: float) -> None:
    """The mean of k̂ over 40 draws of 4,000 weights u^{−k}, whose tails have shape k."""
    rng = np.random.default_rng(0)
    found = [khat(-shape * np.log(rng.random(4000))) for _ in range(40)]
    assert np.mean(found) == pytest.approx(shape, abs=0.06)


def test_bounded_weights_have_a_light_tail() -> None:
    assert khat(np.log(np.random.default_rng(0).random(2000))) < -0.3


def test_scale_does_not_matter() -> None:
    log = np.random.default_rng(1).normal(size=500)
    assert khat(log) == pytest.approx(khat(log + 200))


def test_few_and_equal_weights() -> None:
    assert math.isnan(khat(np.zeros(LEAST - 1)))
    assert khat(np.zeros(100)) == -math.inf


def test_limit_grows_with_the_number_of_weights() -> None:
    assert _trusted(100) == pytest.approx(0.5)
    assert _trusted(10**6) == 0.7


@pytest.mark.parametrize(("rank", "counts"), [(5, True), (6, True), (7, False), (20, False)])
def test_a_tail_is_five_of_25_weights_less_the_sixth(rank: int, counts: bool) -> None:
    """In any order of the weights."""
    rng = np.random.default_rng(3)
    weights = np.sort(rng.normal(size=25))[::-1]
    moved = weights.copy()
    moved[rank - 1] = (weights[rank - 1] + weights[rank]) / 2
    assert (khat(moved) != khat(weights)) == counts
    assert khat(rng.permutation(weights)) == khat(weights)
