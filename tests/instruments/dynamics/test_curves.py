"""Fits: recovery, standard errors under autocorrelated noise, identifiability."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.signal import lfilter

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import fit as curves
from grposcope.instruments.dynamics.curves import MODELS

T = np.arange(1.0, 301.0)
TRUTH = {
    "exponential": {"start": 0.2, "plateau": 0.8, "time_constant": 50.0},
    "inertial": {"start": 0.1, "plateau": 0.9, "time_constant": 40.0, "damping_ratio": 0.6},
}


def curve(model: str, **values: float) -> np.ndarray:
    """The true curve, through the model's shape with times in steps."""
    chosen, span = MODELS[model], T[-1] - T[0]
    psi = [math.log(values[n] / (span if n in chosen.timed else 1.0)) for n in chosen.names]
    f = chosen.shape(np.array([psi]), (T - T[0]) / span)[0][0]
    return values["start"] + (values["plateau"] - values["start"]) * f


def noise(seed: int, sigma: float, rho: float = 0.0, n: int = len(T)) -> np.ndarray:
    white = np.random.default_rng(seed).standard_normal(n + 200)
    return sigma * math.sqrt(1 - rho**2) * lfilter([1.0], [1.0, -rho], white)[200:]


@pytest.mark.parametrize("model", TRUTH)
def test_recovers_a_clean_curve(model: str) -> None:
    y = curve(model, **TRUTH[model])
    found = curves.fit(T, y, model)
    for name, value in TRUTH[model].items():
        assert found.parameters[name].value == pytest.approx(value, rel=1e-3), name
    assert found.r2 > 1 - 1e-6
    np.testing.assert_allclose(found.predict(T), y, atol=1e-3)


@pytest.mark.parametrize("model", TRUTH)
def test_as_good_as_a_general_solver(model: str) -> None:
    """No local minimum: SciPy started at the truth does not find a smaller sum of squares."""
    y = curve(model, **TRUTH[model]) + noise(0, 0.02)
    found = curves.fit(T, y, model)
    names = list(TRUTH[model])

    def residual(log: np.ndarray) -> np.ndarray:
        return curve(model, **dict(zip(names, np.exp(log), strict=True))) - y

    best = least_squares(residual, np.log(list(TRUTH[model].values()))).fun
    ours = found.predict(T) - y
    assert ours @ ours < (best @ best) * (1 + 2e-3)  # the Huber loss gives up a trace of it


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_standard_errors_cover_under_autocorrelated_noise(rho: float) -> None:
    """95 % intervals hold the truth about that often; without ρ they would not (see the ratio asserted last)."""
    truth = TRUTH["exponential"]
    y = curve("exponential", **truth)
    fits = [curves.fit(T, y + noise(seed, 0.05, rho), "exponential") for seed in range(120)]
    for name in ("plateau", "time_constant"):
        inside = [abs(f.parameters[name].value - truth[name]) < 1.96 * f.parameters[name].se for f in fits]
        assert 0.86 <= np.mean(inside) <= 1.0, name
    spread = np.std([f.parameters["plateau"].value for f in fits])
    claimed = np.median([f.parameters["plateau"].se for f in fits])
    assert claimed == pytest.approx(spread, rel=0.25)
    assert np.mean([f.autocorrelation for f in fits]) == pytest.approx(rho, abs=0.05)


def test_outliers_do_not_bend_the_curve() -> None:
    y = curve("exponential", **TRUTH["exponential"]) + noise(1, 0.02)
    y[::25] += 3.0
    assert curves.fit(T, y, "exponential").parameters["plateau"].value == pytest.approx(0.8, abs=0.03)


def test_an_unfinished_rise_has_no_plateau() -> None:
    unfinished = curve("exponential", start=0.2, plateau=3.0, time_constant=2000.0) + noise(2, 0.02)
    found = curves.fit(T, unfinished, "exponential").parameters["plateau"]
    assert "not identified" in found.flag
    finished = curves.fit(T, curve("exponential", **TRUTH["exponential"]) + noise(2, 0.02), "exponential")
    assert finished.flag == ""
    flat = curves.fit(T, 0.5 + noise(3, 0.1), "exponential")
    assert flat.flag


def test_damping_of_an_exponential_is_not_identified() -> None:
    y = curve("exponential", **TRUTH["exponential"]) + noise(4, 0.05)
    found = curves.fit(T, y, "inertial").parameters["damping_ratio"]
    assert found.flag
    slow = curve("inertial", **TRUTH["inertial"]) + noise(4, 0.02)
    sure = curves.fit(T, slow, "inertial").parameters["damping_ratio"]
    assert sure.flag == ""
    assert sure.value == pytest.approx(0.6, abs=4 * sure.se)


def test_reaches() -> None:
    found = curves.fit(T, curve("exponential", **TRUTH["exponential"]), "exponential")
    assert found.reaches(0.95) == pytest.approx(1 + 50 * math.log(20), rel=1e-2)
    assert curves.fit(T, noise(0, 1.0), "constant").reaches() == 1.0


def test_noise_ceiling() -> None:
    y = curve("exponential", **TRUTH["exponential"])
    noisy = y + noise(6, 0.1)
    ceiling = curves.noise_ceiling(T, noisy)
    assert ceiling.value == pytest.approx(1 - 0.01 / noisy.var(), abs=4 * ceiling.se)
    assert curves.fit(T, noisy, "exponential").r2 == pytest.approx(ceiling.value, abs=0.05)
    assert math.isnan(curves.noise_ceiling(T, np.ones(300)).value)


def test_constant_rewards_and_bad_names() -> None:
    for model in MODELS:
        found = curves.fit(T, np.full(300, 0.25), model)
        assert found.flag.startswith("the reward is constant")
        assert found.parameters["plateau"].value == 0.25
        assert found.predict([400.0]).tolist() == [0.25]
    with pytest.raises(UserError, match="unknown model"):
        curves.fit(T, T, "spline")
    with pytest.raises(UserError, match="10 points or more"):
        curves.fit(T[:5], T[:5])
