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
    assert oscillation.check(Quantities(made.run({"reward": swings}))).p < 1e-3


def test_small_swings_that_grow_are_at_most_a_warning() -> None:
    quantities = Quantities(made.run({"reward": 0.3 + 0.02 * np.sin(np.arange(100.0))}, rewards="binary"))
    assert oscillation.grades(0.02, True, quantities) == ("note", "warning")
    assert oscillation.grades(0.1, True, quantities) == ("warning", "failing")
