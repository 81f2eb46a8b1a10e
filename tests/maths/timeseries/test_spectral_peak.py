"""Swings that keep no time: the likelihood against dense matrices, size on noise, and what is found and let pass."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.fft import dct
from scipy.linalg import null_space
from synthetic_series import ar1, drifting

from grposcope.maths.timeseries import periodogram, spectral_peak
from grposcope.maths.timeseries.noise import Design


def test_residual_likelihood_is_that_of_dense_matrices() -> None:
    rng, n = np.random.default_rng(0), 30
    trend, _ = np.linalg.qr(periodogram.trend_columns(n))
    variances = rng.uniform(0.2, 5, (3, n))
    y = rng.normal(size=n)
    design = Design(trend, variances=variances)
    fast = design.log_likelihood(design.squares(dct(y, norm="ortho")))
    transform, apart = dct(np.eye(n), axis=0, norm="ortho"), null_space(trend.T)
    rest = apart.T @ y
    dense = []
    for row in variances:
        covariance = apart.T @ transform.T @ np.diag(row) @ transform @ apart
        square = rest @ np.linalg.solve(covariance, rest)
        dense.append(-0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * len(rest) * np.log(square))
    np.testing.assert_allclose(np.diff(fast), np.diff(dense), rtol=1e-9)
    np.testing.assert_allclose(design.squares(dct(y, norm="ortho")), design.solve(dct(y, norm="ortho"))[1], rtol=1e-9)


def test_models_share_out_the_variance() -> None:
    _, swings, cycles, share, passed = spectral_peak._grid(90)
    np.testing.assert_allclose((1 / swings.weights).mean(1), 1, rtol=0.05)
    np.testing.assert_allclose((passed / swings.weights).mean(1), share, rtol=1e-9)
    assert cycles.min() == spectral_peak.CYCLES
    assert 90 / cycles.max() >= periodogram.FASTEST
    slow = passed[:, 1 : int(spectral_peak.CYCLES)]  # up to half of the lowest frequency
    assert slow.max() < 0.5 < passed.max()


def rejections(n: int, phi: float, repeats: int, share: float = 1.0) -> float:
    rng = np.random.default_rng(0)
    drawn = (np.sqrt(share) * ar1(rng, n, phi) + np.sqrt(1 - share) * rng.normal(size=n) for _ in range(repeats))
    return float(np.mean([found.p < 0.05 for y in drawn if (found := spectral_peak.oscillation(y)) is not None]))


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_noise_does_not_swing(phi: float) -> None:
    assert rejections(70, phi, 150) <= 0.09


@pytest.mark.slow
@pytest.mark.parametrize("n", [40, 100, 400])
@pytest.mark.parametrize(("phi", "share"), [(0.0, 1), (0.3, 1), (0.6, 1), (0.9, 1), (0.95, 0.5)])
def test_size_is_at_most_seven_percent(n: int, phi: float, share: float) -> None:
    assert rejections(n, phi, 600, share) <= 0.07 + 2 * 0.01


def test_swings_that_change_their_period_are_found() -> None:
    """Where no sinusoid is."""
    best, steady = [], 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y = drifting(rng, 200, 14, 0.3) + 0.5 * ar1(rng, 200, 0.3) + np.linspace(0, 3, 200)
        found, sine = spectral_peak.oscillation(y), periodogram.oscillation(y)
        assert found is not None
        assert sine is not None
        assert found.p < 0.01
        assert found.share > 0.4
        assert found.period == pytest.approx(14, rel=0.45)
        steady += min(found.growing, found.fading) > 0.01
        best.append(sine.p / found.p)
    assert np.median(best) > 10
    assert steady >= 6


def test_late_swings_of_a_long_run() -> None:
    rng = np.random.default_rng(1)
    y = ar1(rng, 4000, 0.3)
    assert (found := spectral_peak.oscillation(y)) is not None
    assert found.p > 0.05
    y[3800:] += 2 * drifting(rng, 200, 14, 0.2)
    assert (found := spectral_peak.oscillation(y)) is not None
    assert found.p < 1e-3
    assert (found.first, found.last) == (3800, 3999)
    assert found.period == pytest.approx(14, rel=0.3)


@pytest.mark.parametrize(("growth", "side"), [(3.0, 1), (-4.0, -1)])
def test_growth_and_fading(growth: float, side: int) -> None:
    n, rng = 200, np.random.default_rng(2)
    u = np.arange(n) / n
    found = spectral_peak.oscillation(
        3 * np.exp(growth * (u - (growth > 0))) * drifting(rng, n, 20, 0.15) + 0.1 * ar1(rng, n, 0.3)
    )
    assert found is not None
    assert found.p < 1e-3
    assert (found.growing < 0.01) == (side > 0)
    assert (found.fading < 0.01) == (side < 0)
    assert found.root.value == pytest.approx(np.exp(growth / n), abs=4 * found.root.se)


@pytest.mark.parametrize("width", [0.3, 2.0])
def test_a_level_shift_far_above_the_noise_does_not_ring(width: float) -> None:
    """Neither look takes for swings what the smooth part leaves of it."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        mean = 1 / (1 + np.exp(-np.clip((np.arange(120) - rng.uniform(36, 96)) / width, -50, 50)))
        y = mean + 0.02 * ar1(rng, 120, 0.3)
        for found in (spectral_peak.oscillation(y), periodogram.oscillation(y)):
            assert found is not None
            assert found.p > 0.02


@pytest.mark.parametrize("curve", ["rise", "step", "bend"])
def test_a_changing_level_does_not_swing(curve: str) -> None:
    n = 150
    u = np.arange(n) / n
    mean = {"rise": 1 - np.exp(-u / 0.1), "step": (u > 0.6) * 1.0, "bend": np.maximum(u - 0.6, 0) * 3}[curve]
    for seed in range(10):
        found = spectral_peak.oscillation(mean + 0.05 * ar1(np.random.default_rng(seed), n, 0.6))
        assert found is not None
        assert found.p > 0.05


def test_alternation_is_no_swing_and_a_constant_says_nothing() -> None:
    y = 0.2 * np.random.default_rng(0).normal(size=100) + (-1.0) ** np.arange(100)
    assert (found := spectral_peak.oscillation(y)) is not None
    assert found.p > 0.05
    for exact in (np.linspace(0, 0.3, 100), np.repeat([0.2, 0.7], 50)):
        assert (found := spectral_peak.oscillation(exact)) is not None
        assert found.p == 1.0 or found.share < 1
    assert spectral_peak.oscillation(np.ones(100)) is None
    assert spectral_peak.oscillation(np.arange(30.0)) is None


def test_noise_averaged_over_rows_is_noise() -> None:
    """Rows that are means of ten of an AR(1): their first autocorrelation exceeds what AR(1) and white noise allow."""
    rng, small = np.random.default_rng(3), 0
    for _ in range(60):
        found = spectral_peak.oscillation(ar1(rng, 2000, 0.97).reshape(-1, 10).mean(1))
        assert found is not None
        small += found.p < 0.05
    assert small <= 6
