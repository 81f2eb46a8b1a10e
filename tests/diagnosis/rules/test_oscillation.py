"""The rule of oscillation: what it flags, and what it leaves alone."""

from __future__ import annotations

import numpy as np

import synthetic_series as made
from grposcope.diagnosis import diagnose
from grposcope.timeseries import periodogram
from synthetic_series import U, flagged
from timeseries.test_spectral_peak import drifting


def test_swings_without_a_period_are_oscillation() -> None:
    """No sinusoid follows them; and a late level shift does not hide them."""
    table = made.healthy()
    wave = drifting(np.random.default_rng(7), 120, 10, 0.3)
    table["reward"] = table["reward"] + 0.12 * wave + 0.2 * (U > 0.7)
    finding = next(f for f in diagnose(made.run(table)) if f.status == "flagged")
    assert finding.mode == "oscillation"
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
