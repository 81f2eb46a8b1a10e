"""The rule of no learning: what it flags, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import synthetic_series as made
from synthetic_series import U

from grposcope.instruments.diagnosis import diagnose


def test_a_small_but_clear_rise_is_learning() -> None:
    table = made.healthy()
    table["reward"] = 0.4 + 0.06 * U + 0.002 * made.ar1(np.random.default_rng(4), 120, 0.0)
    finding = next(f for f in diagnose(made.run(table)) if f.fault == "no learning")
    assert finding.status == "excluded"
    assert "more than noise" in finding.because


def test_a_fall_is_no_standstill() -> None:
    table = made.healthy()
    table["reward"] = table["reward"] - 0.9 * U
    finding = next(f for f in diagnose(made.run(table)) if f.fault == "no learning")
    assert finding.status == "excluded"
    assert finding.p > 0.5
