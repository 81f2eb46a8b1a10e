"""Resampling over prompts: weights, pairs, standard errors and intervals against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from grposcope.maths import resampling


def test_the_jackknife_of_a_mean_is_its_textbook_standard_error() -> None:
    values = np.random.default_rng(0).normal(size=15)
    left_out = resampling.mean(values, resampling.jackknife(15))
    assert left_out == pytest.approx([np.delete(values, i).mean() for i in range(15)])
    assert left_out == pytest.approx(resampling.means_left_out(values))
    assert resampling.estimate(values.mean(), left_out).se == pytest.approx(stats.sem(values))


def test_pairs_are_those_of_different_prompts_each_as_often_as_both_were_drawn() -> None:
    rng = np.random.default_rng(1)
    products, weights = rng.normal(size=(5, 5)), rng.integers(0, 4, size=(3, 5)).astype(float)
    for row, found in zip(weights, resampling.pair_mean(products, weights), strict=True):
        pairs = [(row[p] * row[q], products[p, q]) for p in range(5) for q in range(5) if p != q]
        assert found == pytest.approx(sum(w * v for w, v in pairs) / sum(w for w, _ in pairs))
    assert math.isnan(resampling.pair_mean(np.ones((1, 1)), np.ones((1, 1)))[0])


def test_pairs_without_each_prompt_are_those_of_the_jackknife() -> None:
    products = np.random.default_rng(2).normal(size=(6, 6))
    due = resampling.pair_mean(products, resampling.jackknife(6))
    assert resampling.pair_means_left_out(products) == pytest.approx(due)
    assert np.isnan(resampling.pair_means_left_out(products[:2, :2])).all()


def test_a_bootstrap_draw_is_as_many_prompts_as_there_are_with_replacement() -> None:
    weights = resampling.bootstrap(8, 40_000, seed=2)
    assert set(weights.sum(-1)) == {8.0}
    assert weights.mean(0) == pytest.approx(np.ones(8), abs=0.03)
    assert weights.var(0) == pytest.approx(np.full(8, 7 / 8), abs=0.04)
    assert np.corrcoef(weights[:, 0], weights[:, 1])[0, 1] == pytest.approx(-1 / 7, abs=0.03)


def test_intervals_cut_off_half_of_the_rest_on_either_side_and_keep_infinities() -> None:
    replicates = np.arange(1.0, 1001.0)
    assert resampling.interval(replicates) == pytest.approx((25, 975), abs=1)
    assert resampling.interval(replicates, 0.5) == pytest.approx((250, 750), abs=1)
    assert resampling.interval(np.where(replicates > 970, np.inf, replicates))[1] == math.inf
    assert resampling.interval(np.where(replicates > 950, np.nan, replicates))[1] == pytest.approx(926, abs=1)
    assert all(map(math.isnan, resampling.interval(np.where(replicates > 890, np.nan, replicates))))


def test_too_few_prompts_have_no_or_a_rough_standard_error() -> None:
    assert math.isnan(resampling.estimate(1.0, np.array([np.nan])).se)
    assert "no standard error" in resampling.estimate(1.0, np.array([np.nan])).flag
    assert "rough" in resampling.estimate(1.0, np.arange(9.0)).flag
    assert resampling.estimate(1.0, np.arange(10.0)).flag == ""
