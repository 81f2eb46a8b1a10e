"""Noise of which a part is known: by what claims are believed, and what is not seen is not ruled out."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_series import ar1

from grposcope.maths.timeseries import change, mean_curve
from grposcope.maths.timeseries.mean_curve import SamplingVariance
from grposcope.maths.timeseries.noise import Design, harmonic_mean

LINE = np.column_stack([np.ones(60), np.linspace(-0.5, 0.5, 60)])


def believed(y: np.ndarray, sampling: SamplingVariance) -> float:
    """Posterior probability that the claim is right."""
    return float(mean_curve.regress(Design(LINE), y, sampling).weight[len(Design(LINE).weights) :].sum())


@pytest.mark.parametrize(("factor", "least", "most"), [(1.0, 0.55, 1.0), (0.1, 0.0, 0.6), (8.0, 0.0, 1e-3)])
def test_a_claim_is_believed_where_the_scatter_agrees(factor: float, least: float, most: float) -> None:
    y = np.random.default_rng(0).normal(size=60)
    y *= 2 / y.std()
    assert least <= believed(y, SamplingVariance(4 * factor, 4 * factor)) <= most


def test_priors_sum_to_one_and_scale_with_the_claim() -> None:
    variances, prior = mean_curve._noises(50, SamplingVariance(1.0, 3.0))
    assert np.exp(prior).sum() == pytest.approx(1)
    scaled, _ = mean_curve._noises(50, SamplingVariance(7.0, 21.0))
    np.testing.assert_allclose(scaled, 7 * variances)
    assert variances.min() == pytest.approx(1 / mean_curve.WIDER)


def test_a_known_noise_gives_the_error_of_weighted_least_squares() -> None:
    """With 200 rows of white noise of known variance the line's error is that of least squares, with little added."""
    n, rng = 200, np.random.default_rng(1)
    y = rng.normal(size=n)
    line = change.fit_line(y, SamplingVariance(1.0, 1.0))
    assert line is not None
    x = np.column_stack([np.ones(n), (np.arange(n) + 0.5) / n])
    combination = line.window((0.8, 1.0)) - line.window((0.0, 0.15))
    exact = np.sqrt(combination @ np.linalg.inv(x.T @ x) @ combination)
    assert 0.85 * exact < line.change().se < 1.6 * exact


def test_known_noise_of_blocks_and_wandering_rows() -> None:
    """Means of blocks have less sampling noise; a wandering that is plain to see is not taken for a trend."""
    rng = np.random.default_rng(2)
    y = rng.normal(size=1200)
    assert believed_by_blocks(y, 1.0) > 0.8
    p = [
        change.fit(0.3 * rng.normal(size=120) + ar1(rng, 120, 0.9), SamplingVariance(0.09, 0.09)).change().p_up
        for _ in range(80)
    ]
    assert np.mean(np.array(p) < 0.05) < 0.12


def believed_by_blocks(y: np.ndarray, variance: float) -> float:
    curve = change.fit(y, SamplingVariance(variance, variance))
    return float(curve.regression.weight[np.isinf(curve.regression.df)].sum())


def test_bends_that_are_evident_leave_no_line() -> None:
    u = np.linspace(0, 1, 100)
    rng = np.random.default_rng(3)
    assert change.fit_line(np.minimum(u, 1 - u) + 0.02 * rng.normal(size=100)) is None
    assert change.fit_line(u + 0.02 * rng.normal(size=100)) is not None


def test_a_drop_is_found_where_no_line_would() -> None:
    y = np.where(np.arange(40) < 24, 0.88, 0.55) + 0.08 * np.random.default_rng(4).normal(size=40)
    shift = change.sudden(y)
    assert shift is not None
    assert shift.p < 0.005
    assert shift.size == pytest.approx(-0.33, abs=0.08)
    assert abs(shift.start - 24) <= 2
    assert change.sudden(np.ones(40)) is None


def test_harmonic_mean() -> None:
    assert harmonic_mean([0.01, 0.01]) == pytest.approx(0.01)
    assert harmonic_mean([0.001, 1.0]) == pytest.approx(0.002, rel=0.01)
    assert harmonic_mean([0.0, 0.5]) == 0.0
    assert harmonic_mean([0.0, 1e-300, 1.0]) == 0.0


def test_p_values_are_no_less_than_nothing() -> None:
    """Of a curve that falls beyond any doubt, both p-values lie in [0, 1], the small one as well as the large one."""
    for seed in range(48):
        n = (60, 100, 150, 200)[seed % 4]
        level = np.interp(np.arange(n), [0, n // 2, n // 2 + 15], [0.95, 0.95, 0.0])
        y = level + 0.01 * np.random.default_rng(seed).normal(size=n) * (level > 0)
        test = change.fit(y).change()
        assert 0 <= test.p_down < 1e-3
        assert 0.999 < test.p_up <= 1
