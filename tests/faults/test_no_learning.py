"""The rule of no learning: what it flags, and what it leaves alone."""

from __future__ import annotations

import re

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


def test_a_short_log_does_not_rule_a_gain_out() -> None:
    table = {name: values[:37] for name, values in made.healthy().items()}
    table["reward"] = 0.45 + 0.1 * np.random.default_rng(3).normal(size=37)
    finding = next(f for f in diagnose(made.run(table)) if f.fault == "no learning")
    assert not finding.present
    assert re.search(r"at most over 36 steps, and 0\.1 or more is not ruled out$", finding.because)


def test_a_fall_is_no_standstill() -> None:
    table = made.healthy()
    table["reward"] = table["reward"] - 0.9 * U
    finding = next(f for f in diagnose(made.run(table)) if f.fault == "no learning")
    assert finding.status == "excluded"
    assert finding.p > 0.5


def test_a_fall_within_the_first_rows_is_no_standstill() -> None:
    """As without a warm-up: the first tenth already holds the fall, beside which nothing moves any more."""
    table, rows = made.healthy(), np.arange(len(U))
    table["reward"] = 0.06 + 0.36 * np.exp(-((rows / 3) ** 2)) + 0.005 * made.ar1(np.random.default_rng(4), len(U), 0.0)
    finding = next(f for f in diagnose(made.run(table)) if f.fault == "no learning")
    assert finding.status == "excluded"
    assert finding.because.startswith("the reward fell from ")
