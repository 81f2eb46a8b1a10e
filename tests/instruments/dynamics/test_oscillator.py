"""The oscillator: against a numerical integrator, across the borders of its branches, and as a limit of heavy ball."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.dynamics.oscillator import Oscillator
from grposcope.instruments.dynamics.stability import _adam_step, _curvature_of

BRANCHES = {
    "overdamped": Oscillator(0.95, 1.0, 0.05, 0.2, 0.9, 0.01),
    "oscillatory": Oscillator(0.95, 0.1, 0.05, 0.2, 0.9, -0.02),
    "critical": Oscillator(1.0, 0.4, 0.04, 0.2, 0.9, 0.03),
    "unstable": Oscillator(0.95, -0.02, 0.05, 0.2, 0.9),
    "unstable, real": Oscillator(0.5, -0.5, 0.05, 0.2, 0.9),
    "undamped": Oscillator(1.0, 0.0, 0.05, 0.2, 0.9, 0.01),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_closed_form_solves_the_equation(name: str) -> None:
    o = BRANCHES[name]
    t = np.linspace(0, 40, 41)

    def force(_: float, y: np.ndarray) -> list[float]:
        return [y[1], -(o.damping * y[1] + o.stiffness * (y[0] - o.plateau)) / o.mass]

    truth = solve_ivp(force, (0, 40), [o.start, o.velocity], t_eval=t, rtol=1e-11, atol=1e-12).y
    np.testing.assert_allclose(o.trajectory(t), truth[0], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(o.velocities(t), truth[1], rtol=1e-7, atol=1e-8)
    assert o.regime == name.split(",")[0].replace("undamped", "oscillatory")


@pytest.mark.parametrize("offset", [1e-3, 1e-6, 1e-9, 1e-12, 1e-15])
@pytest.mark.parametrize("sign", [-1, 1])
def test_continuous_across_critical_damping(offset: float, sign: int) -> None:
    """The distance to the critical trajectory is of the order of the offset, never of its square root."""
    t = np.linspace(0, 100, 201)
    critical = Oscillator(1.0, 0.4, 0.04, 0.0, 1.0)
    near = Oscillator(1.0, 0.4, 0.04 * (1 + sign * offset), 0.0, 1.0)
    distance = np.abs(near.trajectory(t) - critical.trajectory(t)).max()
    assert distance < 3 * offset + 1e-14


def test_vanishing_mass_is_the_overdamped_limit() -> None:
    t = np.linspace(0, 50, 51)
    limit = Oscillator(0.0, 0.5, 0.05, 0.1, 0.8).trajectory(t)
    np.testing.assert_allclose(limit, 0.8 - 0.7 * np.exp(-t / 10), rtol=1e-14)
    errors = [np.abs(Oscillator(m, 0.5, 0.05, 0.1, 0.8).trajectory(t) - limit).max() for m in (1e-3, 1e-4, 1e-8)]
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.05)  # first order in the mass
    assert errors[2] < 1e-8
    assert BRANCHES["overdamped"].overdamped().mass == 0


def test_slow_start() -> None:
    """With mass the reward starts with slope 0, without it does not."""
    o = Oscillator(0.95, 0.5, 0.01, 0.0, 1.0)
    assert o.velocities(0.0) == 0
    assert o.overdamped().velocities(0.0) == pytest.approx(0.02)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_heavy_ball_tends_to_the_oscillator(momentum: float) -> None:
    """At a fixed damping ratio the error of the continuum falls in proportion to the step size ηκ/(1 − β)²."""
    errors = []
    for k in (0.04, 0.01):
        stiffness = k * (1 - momentum) ** 2
        steps = int(3 * (1 - momentum) / stiffness)
        x, v, path = 0.0, 0.0, [0.0]
        for _ in range(steps):
            v = momentum * v + (1.0 - x)
            x += stiffness * v
            path.append(x)
        model = Oscillator.from_optimizer(stiffness, momentum, 1.0).trajectory(np.arange(steps + 1))
        errors.append(np.abs(model - path).max())
    assert errors[1] < 0.03
    assert errors[1] < errors[0] / 2


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_mass_is_the_second_order_of_heavy_ball(momentum: float) -> None:
    """The slow multiplier λ of x_{n+1} − x_n = β(x_n − x_{n−1}) − kx has −ln λ = k/c + k²m/c³ + O(k³)."""
    c = 1 - momentum
    k = 1e-4 * c**2
    trace = 1 + momentum - k
    slow = (trace + math.sqrt(trace**2 - 4 * momentum)) / 2
    second = (-math.log(slow) - k / c) * c**3 / k**2
    assert Oscillator.from_optimizer(k, momentum, 1.0).mass == pytest.approx(second, rel=1e-3)


def test_lag_erodes_damping() -> None:
    o = Oscillator.from_optimizer(0.1, 0.9, 0.5, lag=1.0)
    assert o.damping == pytest.approx(0.1 - 0.05)
    assert Oscillator.from_optimizer(0.1, 0.9, 0.5, lag=3.0).regime == "unstable"


def test_adam_is_heavy_ball_with_a_measured_step() -> None:
    """Adam with a second moment that has settled moves as heavy ball with `adam_step`, exactly."""
    lr, beta, rms, curvature = 0.01, 0.9, 0.3, 0.2
    step = _adam_step(lr, beta, rms, eps=0.0)
    x, m = 1.0, 0.0
    y, v = 1.0, 0.0
    for _ in range(50):
        m = beta * m + (1 - beta) * (-curvature * x)
        x += lr * m / rms
        v = beta * v - curvature * y
        y += step * v
    assert x == pytest.approx(y, rel=1e-12)
    with pytest.raises(UserError, match="rms gradient"):
        _adam_step(lr, beta, 0.0)


def test_period_of_an_oscillation() -> None:
    o = Oscillator(1.0, 0.02, 0.04, 0.0, 1.0)
    t = np.linspace(0, 200, 200001)
    y = o.trajectory(t)
    peaks = t[1:-1][(y[1:-1] > y[:-2]) & (y[1:-1] > y[2:])]
    assert np.diff(peaks) == pytest.approx(o.period, rel=1e-4)
    assert BRANCHES["overdamped"].period == math.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.1, 1.0, 0.5), "momentum 1"),
        ((0.1, -0.1, 0.5), "momentum"),
        ((0.1, 0.9, 0.0), "curvature 0"),
        ((0.1, 0.9, -1.0), "curvature"),
        ((0.0, 0.9, 0.5), "learning rate"),
        ((math.nan, 0.9, 0.5), "learning rate"),
    ],
)
def test_bad_settings(arguments: tuple[float, float, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Oscillator.from_optimizer(*arguments)


def test_bad_oscillators() -> None:
    for bad in ((-1.0, 1.0, 1.0), (1.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, math.inf, 1.0)):
        with pytest.raises(UserError):
            Oscillator(*bad, start=0.0, plateau=1.0)
    with pytest.raises(UserError, match="lag"):
        Oscillator.from_optimizer(0.1, 0.9, 0.5, lag=-1.0)


def test_curvature_of_a_time_constant_undoes_it() -> None:
    """Without lag the overdamped oscillator of κ has τ = c/k; a lag makes a run slower, not less stiff."""
    made = Oscillator.from_optimizer(0.1, 0.5, 0.2)
    found = _curvature_of(Estimate(made.time_constant, 2.0, 50), 0.1, 0.5)
    assert found.value == pytest.approx(0.2)
    assert found.se == pytest.approx(0.2 * 2.0 / made.time_constant)
    assert _curvature_of(Estimate(24.0, 1.0, 50), 0.1, 0.5, 3).value == pytest.approx(0.5 / (0.1 * 25))
    assert _curvature_of(Estimate(24.0, 1.0, 50, "not identified"), 0.1, 0.5).flag == "not identified"
    with pytest.raises(UserError, match="interval 0"):
        _curvature_of(Estimate(24.0, 1.0, 50), 0.1, 0.5, 0)
