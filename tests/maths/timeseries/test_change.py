"""The noise model against its exact covariance, and the size and power of trend tests by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.fft import dct
from synthetic_series import ar1

from grposcope.core.errors import UserError
from grposcope.maths.timeseries import change, noise, periodogram


@pytest.mark.parametrize("n", [9, 40])
def test_variances_of_cosine_coefficients_are_exact(n: int) -> None:
    variances, names = noise.cosine_variances(n)
    transform = dct(np.eye(n), axis=0, norm="ortho")
    for row, (phi, share) in zip(variances, names, strict=True):
        lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        covariance = share * (phi**lags if phi else np.eye(n)) + (1 - share) * np.eye(n)
        np.testing.assert_allclose(row, np.diag(transform @ covariance @ transform.T), rtol=1e-9)


def test_constant_and_straight_series_are_exact() -> None:
    flat, line = change.fit(np.full(60, 0.9)), change.fit(np.linspace(0, 1, 60))
    assert flat.change().p_up == 1.0
    assert flat.level(above=0.8).p_up == 0.0
    assert line.change().p_up == 0.0
    assert line.change().value == pytest.approx(0.9 - 0.075, abs=0.02)


def test_level_subtracts_a_constant() -> None:
    y = 5 + ar1(np.random.default_rng(0), 100, 0.3)
    curve = change.fit(y)
    assert curve.level(above=4.0).value == pytest.approx(curve.level().value - 4.0)


def test_blocks_keep_the_mean_of_equal_blocks() -> None:
    y = np.arange(1003.0)
    averaged = change.block_means(y, 100)
    assert len(averaged) <= 100
    assert averaged[-1] == y[-11:].mean()


def test_too_few_rows() -> None:
    with pytest.raises(UserError, match="at least 8"):
        change.fit(np.ones(7))


def size(n: int, phi: float, repeats: int, seed: int = 0) -> float:
    rng = np.random.default_rng(seed)
    return float(np.mean([change.fit(ar1(rng, n, phi)).change().p_up < 0.05 for _ in range(repeats)]))


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_size_small(phi: float) -> None:
    assert size(120, phi, 200) <= 0.09


@pytest.mark.slow
@pytest.mark.parametrize("n", [35, 60, 200])
@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6, 0.9])
def test_size_is_at_most_seven_percent(n: int, phi: float) -> None:
    assert size(n, phi, 1000) <= 0.07 + 2 * 0.007


@pytest.mark.slow
@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6, 0.9])
def test_size_of_oscillation(phi: float) -> None:
    rng = np.random.default_rng(1)
    found = [periodogram.oscillation(ar1(rng, 200, phi)) for _ in range(300)]
    assert np.mean([s is not None and s.p < 0.05 for s in found]) <= 0.07 + 2 * 0.0125


@pytest.mark.parametrize(("growth", "side"), [(3.0, 1), (0.0, 0), (-4.0, -1)])
def test_oscillation_finds_period_and_root(growth: float, side: int) -> None:
    n = 200
    u = np.arange(n) / n
    y = 2 * np.exp(growth * (u - (growth > 0))) * np.sin(2 * np.pi * np.arange(n) / 33)
    found = periodogram.oscillation(y + 3 * (1 - np.exp(-u / 0.2)) + 0.3 * ar1(np.random.default_rng(3), n, 0.3))
    assert found is not None
    assert found.p < 1e-3
    assert found.period == pytest.approx(33, rel=0.05)
    assert found.root.value == pytest.approx(np.exp(growth / n), abs=0.006)
    assert (found.growing < 0.05) == (side > 0)
    assert (found.fading < 0.05) == (side < 0)


def test_a_saturating_rise_is_no_oscillation() -> None:
    u = np.arange(200) / 200
    found = periodogram.oscillation(1 - np.exp(-u / 0.1) + 0.05 * ar1(np.random.default_rng(0), 200, 0.6))
    assert found is not None
    assert found.p > 0.05
