"""Shapes of the fitted curves: Jacobians by differences, limits, and the oscillator behind the inertial one."""

from __future__ import annotations

import numpy as np
import pytest

from grposcope.instruments.dynamics.curves import MODELS
from grposcope.instruments.dynamics.oscillator import Oscillator

SHAPED = [name for name in MODELS if name != "constant"]
S = np.linspace(0, 1, 40)


def inside(name: str, count: int) -> np.ndarray:
    model = MODELS[name]
    low, high = np.log(model.low), np.log(model.high)
    return np.random.default_rng(0).uniform(low + 0.05, high - 0.05, (count, len(low)))


@pytest.mark.parametrize("name", SHAPED)
def test_jacobian(name: str) -> None:
    shape, psi, h = MODELS[name].shape, inside(name, 60), 1e-5
    if name == "inertial":  # both sides of critical damping, and on it
        psi[:20, 1] = np.linspace(-1e-3, 1e-3, 20)
        psi[20, 1] = 0.0
    f, slopes = shape(psi, S)
    for i in range(psi.shape[1]):
        shift = np.zeros(psi.shape[1])
        shift[i] = h
        difference = (shape(psi + shift, S)[0] - shape(psi - shift, S)[0]) / (2 * h)
        error = np.abs(difference - slopes[:, i]).max(1) / (1 + np.abs(slopes[:, i]).max(1))
        assert error.max() < 1e-6
    assert np.abs(f[:, 0]).max() == 0
    assert np.isfinite(f).all()


@pytest.mark.parametrize("zeta", [0.15, 0.9, 1.0, 1.0 + 1e-9, 3.0, 9.0])
def test_inertial_is_the_oscillator(zeta: float) -> None:
    """τ = c/k and ζ fix the trajectory of an oscillator at rest up to its ends."""
    tau, stiffness = 0.3, 0.05
    damping = tau * stiffness
    mass = (damping / (2 * zeta)) ** 2 / stiffness
    expected = Oscillator(mass, damping, stiffness, 0.0, 1.0).trajectory(S)
    shape = MODELS["inertial"].shape
    np.testing.assert_allclose(shape(np.log([[tau, zeta]]), S)[0][0], expected, rtol=1e-9, atol=1e-12)


def test_limits() -> None:
    shapes = {name: model.shape for name, model in MODELS.items()}
    exponential, inertial = shapes["exponential"], shapes["inertial"]
    assert exponential is not None
    assert inertial is not None
    plain = exponential(np.log([[0.3]]), S)[0]
    assert np.abs(inertial(np.log([[0.3, 40.0]]), S)[0] - plain).max() < 1e-3
