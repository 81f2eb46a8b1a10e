"""Stationary noise: Lyapunov against the closed form, a long simulation, its spectrum, and the 1/G law."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import noise, refresh


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("pull", [0.01, 0.5, 1.9])
def test_closed_form_for_fresh_rollouts(momentum: float, pull: float) -> None:
    lr, q = 0.3, 0.7
    expected = lr**2 * q * (1 + momentum) / ((1 - momentum) * pull * (2 * (1 + momentum) - pull))
    assert noise.stationary_variance(lr, momentum, pull / lr, 1, q) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("momentum", "interval"), [(0.0, 1), (0.0, 12), (0.8, 1), (0.8, 5), (0.5, 9)])
def test_covariance_against_simulation(momentum: float, interval: int) -> None:
    """Step by step, the force and its noise held over each cycle, many chains at once."""
    lr, curvature, q, chains = 0.1, 0.6, 0.25, 4000
    random = np.random.default_rng(interval)
    x, v = np.zeros(chains), np.zeros(chains)
    first = None
    cycles = 150
    for cycle in range(cycles + 4):
        if cycle == cycles:
            first = x.copy()
        force = -curvature * x + math.sqrt(q) * random.standard_normal(chains)
        for _ in range(interval):
            v = momentum * v + force
            x = x + lr * v
    assert first is not None
    expected = noise._stationary_covariance(lr, momentum, curvature, interval, q)
    np.testing.assert_allclose(np.cov(x, v), expected, rtol=0.1, atol=0.03 * np.abs(expected).max())
    lagged = noise.autocovariance(lr, momentum, curvature, interval, q, 4)
    assert lagged[0] == pytest.approx(expected[0, 0])
    assert np.mean(first * x) == pytest.approx(lagged[4], abs=0.08 * lagged[0])


def test_one_over_group() -> None:
    groups = np.array([2, 4, 8, 16, 64])
    variances = [noise.stationary_variance(0.1, 0.9, 0.3, 4, 2.0 / (5 * g)) for g in groups]
    slope = np.polyfit(np.log(groups), np.log(variances), 1)[0]
    assert slope == pytest.approx(-1, abs=1e-9)


@pytest.mark.parametrize(("momentum", "interval"), [(0.0, 3), (0.9, 1), (0.9, 6)])
def test_spectrum_adds_up_to_the_variance_and_is_the_transform_of_the_autocovariance(
    momentum: float, interval: int
) -> None:
    setting = (0.1, momentum, 0.3, interval, 0.4)
    f = (np.arange(20000) + 0.5) / 20000 - 0.5
    spectrum = noise.power_spectrum(f, *setting)
    assert spectrum.mean() == pytest.approx(noise.stationary_variance(*setting), rel=1e-6)
    lagged = noise.autocovariance(*setting, 3)
    assert np.mean(spectrum * np.cos(2 * math.pi * 3 * f)) == pytest.approx(lagged[3], rel=1e-5)


def test_spectrum_peaks_at_the_period() -> None:
    """A lightly damped run shows its oscillation as a line in the noise."""
    setting = (0.02, 0.95, 1.0, 1)
    f = np.linspace(0, 0.5, 5001)
    peak = f[noise.power_spectrum(f, *setting, 1.0).argmax()]
    assert 1 / peak == pytest.approx(refresh.margin(*setting).period, rel=0.05)


def test_unstable_has_no_stationary_state() -> None:
    assert noise.stationary_variance(0.1, 0.0, 1.0, 21, 1.0) == math.inf
    assert np.isnan(noise._stationary_covariance(0.1, 0.0, 1.0, 21, 1.0)).all()
    assert np.isnan(noise.power_spectrum([0.1], 0.1, 0.0, 1.0, 21, 1.0)).all()
    with pytest.raises(UserError, match="noise variance"):
        noise.stationary_variance(0.1, 0.0, 1.0, 1, -1.0)
