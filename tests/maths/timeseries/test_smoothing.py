"""Rows that are an exponential average are recognised, and rows with a jump are not taken for one."""

from __future__ import annotations

import numpy as np
import pytest

from grposcope.maths.timeseries import periodogram
from grposcope.maths.timeseries.noise import cosine_variances, running_mean, smoothing

WHITE = np.random.default_rng(0).normal(size=(12, 200))


def averaged(rows: np.ndarray, phi: float) -> np.ndarray:
    """The exponential average of rows, begun at the first."""
    values = [rows[0]]
    for value in rows[1:]:
        values.append(phi * values[-1] + (1 - phi) * value)
    return np.array(values)


@pytest.mark.parametrize("phi", [0.8, 0.9, 0.95])
def test_an_exponential_average_is_recognised(phi: float) -> None:
    found = [smoothing(averaged(rows, phi)) for rows in WHITE]
    assert sum(one > 0 for one in found) >= 11
    assert abs(float(np.median(found)) - phi) < 0.12


@pytest.mark.parametrize("jump", [0.0, 10.0, 50.0])
def test_a_jump_between_rows_with_noise_of_their_own_is_no_average(jump: float) -> None:
    """One difference that is nearly all there is of them has no correlation, as those of a wandering have none."""
    step = jump * (np.arange(200) >= 120)
    assert all(smoothing(rows - step) == 0 for rows in WHITE)


def test_the_variances_of_averaged_noise_are_those_of_its_autocovariance() -> None:
    """An exponential average by 0.75 of AR(1) noise of φ = 0.6, from its impulse response."""
    n, phi, weight = 24, 0.6, 0.75
    variances, names = cosine_variances(n, coarse=True, averaged=True)
    row = int(np.flatnonzero(np.isinf(names[:, 1]) & (names[:, 0] == phi))[0])
    response = np.convolve(phi ** np.arange(400), weight ** np.arange(400))[:400]
    covariance = np.array([response[: 400 - k] @ response[k:] for k in range(n)])
    table = covariance[np.abs(np.subtract.outer(np.arange(n), np.arange(n)))] / covariance[0]
    waves = np.cos(np.pi * np.outer(np.arange(n), np.arange(n) + 0.5) / n)
    waves /= np.linalg.norm(waves, axis=1, keepdims=True)
    np.testing.assert_allclose(variances[row], np.diag(waves @ table @ waves.T), rtol=1e-9)


def test_averages_of_wandering_noise_do_not_swing_and_waves_do() -> None:
    rng = np.random.default_rng(3)
    p = []
    for _ in range(12):
        wandering = averaged(rng.normal(size=260), 0.85)
        seen = periodogram.oscillation(averaged(wandering, 0.85)[60:])
        assert seen is not None
        p.append(seen.p)
    assert min(p) > 0.003
    wave = np.sin(2 * np.pi * np.arange(200) / 25)
    for rows in WHITE[:4]:
        seen = periodogram.oscillation(wave + 0.2 * averaged(averaged(rows, 0.85), 0.85))
        assert seen is not None
        assert seen.p < 1e-4


@pytest.mark.parametrize("width", [4, 10, 25])
def test_a_running_mean_is_recognised_with_its_length(width: int) -> None:
    rng = np.random.default_rng(width)
    seen = [running_mean(np.convolve(rng.normal(size=300), np.ones(width) / width, "valid")) for _ in range(12)]
    assert sum(rows == width for rows in seen) >= 10


def test_noise_an_average_of_it_and_waves_are_no_running_means() -> None:
    wave = np.sign(np.sin(2 * np.pi * np.arange(200) / 16))
    for rows in WHITE:
        assert {running_mean(values) for values in (rows, averaged(rows, 0.9), wave + 0.5 * rows, wave)} == {1}
