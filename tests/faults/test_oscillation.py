"""The rule of oscillation: what it flags, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import synthetic_series as made
from synthetic_series import U, drifting, flagged

from grposcope.instruments.diagnosis import diagnose
from grposcope.maths.timeseries import periodogram
from grposcope.signs import swings as oscillation
from grposcope.signs.quantities import Quantities


def test_swings_without_a_period_are_oscillation() -> None:
    """No sinusoid follows them; and a late level shift does not hide them."""
    table = made.healthy()
    wave = drifting(np.random.default_rng(7), 120, 10, 0.3)
    table["reward"] = table["reward"] + 0.12 * wave + 0.2 * (U > 0.7)
    finding = next(f for f in diagnose(made.run(table)) if f.status == "present")
    assert finding.fault == "oscillation"
    sine = periodogram.oscillation(table["reward"])
    assert sine is not None
    assert finding.p < 1e-3 * sine.p


def test_swings_that_fade_are_not_flagged() -> None:
    table = made.healthy()
    table["reward"] = table["reward"] + 0.4 * np.sin(2 * np.pi * 6 * U) * np.exp(-2 * U)
    assert not {"oscillation", "growing oscillation"} & set(flagged(table))


def test_steady_swings_do_not_grow() -> None:
    """Small ones, so that the growth is not known well."""
    for seed in range(6):
        table = made.healthy(seed)
        table["reward"] = table["reward"] + 0.06 * np.sin(2 * np.pi * 6 * U)
        assert "growing oscillation" not in flagged(table)


def test_noise_that_grows_with_the_reward_is_no_growing_swing_and_swings_that_grow_in_steady_noise_are() -> None:
    rng, u = np.random.default_rng(0), (np.arange(100) + 0.5) / 100
    assert periodogram.evened(0.3 + 0.5 * u + 0.05 * rng.normal(size=100)) is None
    louder = (0.05 + u) * (1 + 0.4 * rng.normal(size=100))
    even = periodogram.evened(louder)
    assert even is not None
    first, last = np.std(even[:30]), np.std(even[-30:])
    assert 0.5 < last / first < 2 < np.std(np.diff(louder)[-30:]) / np.std(np.diff(louder)[:30])
    swings = 0.5 + 0.3 * np.exp(3 * (u - 1)) * np.sin(2 * np.pi * 8 * u) + 0.02 * rng.normal(size=100)
    assert oscillation.TEST.check(Quantities(made.run({"reward": swings}))).p < 1e-3


def test_small_swings_that_grow_are_at_most_a_warning() -> None:
    quantities = Quantities(made.run({"reward": 0.3 + 0.02 * np.sin(np.arange(100.0))}, rewards="binary"))
    assert oscillation.grades(0.02, True, quantities) == ("note", "warning")
    assert oscillation.grades(0.1, True, quantities) == ("warning", "failing")


HUMP = np.array([
    1.19, 1.22, 1.24, 1.29, 1.53, 1.43, 1.43, 1.54, 1.55, 1.61, 1.62, 1.6, 1.72, 1.71, 1.59, 1.82, 1.78, 1.84, 1.87,
    1.95, 1.96, 1.99, 2.07, 2.04, 2.07, 2.01, 2.12, 2.19, 2.09, 2.07, 2.19, 2.14, 2.19, 2.14, 2.27, 2.27, 2.2, 2.21,
    2.24, 2.38, 2.25, 2.32, 2.38, 2.38, 2.4, 2.38, 2.4, 2.43, 2.37, 2.42, 2.42, 2.32, 2.36, 2.37, 2.38, 2.46, 2.34,
    2.42, 2.38, 2.35, 2.36, 2.34, 2.21, 2.12, 2.04, 1.96, 1.89, 1.82, 1.55, 1.36, 1.28, 0.86, 0.7, 0.46, 0.25, 0.03,
    -0.31, -0.53, -0.75, -0.77, -1.02, -1.1, -1.21, -1.27, -1.37, -1.37, -1.44, -1.53, -1.44, -1.51, -1.56, -1.59,
    -1.57, -1.53, -1.57,
])  # fmt: skip
"""A reward that rises and then collapses, as where the KL grows against its own penalty."""


def test_a_single_hump_or_collapse_is_no_oscillation() -> None:
    """It rises, collapses and stays down, which three cycles of a growing sinusoid fit well."""
    u, reward = (np.arange(95) + 0.5) / 95, HUMP
    sine = periodogram.oscillation(reward)
    assert sine is not None
    assert oscillation.lasting(sine) < 0.02
    assert oscillation.TEST.check(Quantities(made.run({"reward": reward}))).p == 1
    swinging = reward + 1.5 * u * np.sin(2 * np.pi * 5 * u)
    assert oscillation.TEST.check(Quantities(made.run({"reward": swinging}))).p < 1e-3


def test_legs_are_ways_up_and_down_of_a_size() -> None:
    cycles = np.sin(2 * np.pi * 3 * np.arange(120) / 120)
    assert oscillation.legs(cycles, 40, 0.5) == 6
    assert oscillation.legs(np.linspace(0, 1, 120), 40, 0.5) == 1
    assert oscillation.legs(cycles, 40, 2.5) == 0


def test_running_means_of_noise_do_not_swing_and_running_means_of_swings_do() -> None:
    """A mean of the last 20 rows has swings of its own, which say nothing of the run."""
    rng, width = np.random.default_rng(4), 20
    noise = np.convolve(rng.normal(size=600 + width - 1), np.ones(width) / width, "valid")
    swings = np.sin(2 * np.pi * np.arange(600) / 150)
    for values, swing in ((0.5 + 0.1 * noise, False), (0.5 + 0.1 * noise + 0.1 * swings, True)):
        table = made.healthy() | {"step": np.arange(1.0, 601), "reward": values}
        table = {name: np.resize(column, 600) for name, column in table.items()}
        found = oscillation.TEST.check(Quantities(made.run(table)))
        assert (found.p < 0.003) is swing
