"""A score that is measured a few times, from several places of the run on."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_series import ar1

from grposcope.maths.timeseries.peak import since_places


def least(y: np.ndarray) -> float:
    seen = since_places(np.arange(1, len(y) + 1) / len(y), y)
    return min(1.0, min(since.change().p_down for since in seen) * len(seen))


def test_changes_are_exact_without_noise() -> None:
    share = np.linspace(0, 1, 21)
    y = 0.2 + 0.5 * np.minimum(share / 0.3, 1) - 0.21 * np.maximum(share - 0.3, 0) / 0.7
    since = next(s for s in since_places(share, y) if s.first == 6)
    assert since.start == pytest.approx(0.7)
    assert since.change().value == pytest.approx(-0.21)
    assert since.whole().value == pytest.approx(0.29)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["white", "wandering", "early rise", "sudden rise"])
@pytest.mark.parametrize("n", [6, 12, 30])
def test_what_only_rises_seldom_falls(kind: str, n: int) -> None:
    """Size at nominal 5 % after the choice of the place; wandering: correlation within a twentieth of the run."""
    rng, x = np.random.default_rng([n, len(kind)]), np.arange(1, n + 1) / n
    phi = np.exp(-20 / n) if kind == "wandering" else 0.0
    mean = {"early rise": 8 * (1 - np.exp(-5 * x)), "sudden rise": 8.0 * (x > 0.4)}.get(kind, np.zeros(n))
    found = sum(least(mean + ar1(rng, n, phi)) < 0.05 for _ in range(150))
    assert found <= 18  # 12 %, of which 5 % are meant: P = 0.0004


def test_a_peak_is_found_and_values_that_repeat_prove_nothing() -> None:
    rng, x = np.random.default_rng(0), np.arange(1, 21) / 20
    mean = np.minimum(x / 0.35, 1) - 0.7 * np.maximum(x - 0.35, 0) / 0.65
    assert sum(least(mean + 0.1 * rng.normal(size=20)) < 0.003 for _ in range(20)) >= 18
    assert least(np.array([0.1, 0.1, 0.1, 0.1, 0.1, 0.1])) == 1.0
    assert least(np.array([0.48, 0.5, 0.5, 0.5, 0.5, 0.48])) > 0.05


def test_evaluations_at_one_share_of_the_run_have_no_slope() -> None:
    """Such as those of a supervised phase, all before the first reward: a line through them is their mean alone."""
    share = np.array([0, 0, 0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    y = np.array([0.1, 0.2, 0.15, 0.2, 0.3, 0.25, 0.4, 0.45, 0.4, 0.5, 0.5, 0.6])
    at_once = next(s for s in since_places(share, y) if s.first == 3)
    assert at_once.whole().value == pytest.approx(at_once.start + at_once.change().value - y[:3].mean(), abs=0.02)
