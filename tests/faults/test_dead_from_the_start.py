"""Groups that are dead from the first row are told before what the policy then did; an early fall from its start."""

from __future__ import annotations

import numpy as np
import synthetic_series as made

from grposcope.instruments.diagnosis import diagnose


def collapsing(dead_at_first: float, early: bool = False) -> dict[str, np.ndarray]:
    """Columns of a run whose entropy falls to a hundredth, at row 40, or from the first one where `early`."""
    rng = np.random.default_rng(1)
    table = made.healthy()
    table["reward"] = 0.03 + 0.005 * made.ar1(rng, 120, 0.3)
    table["dead_fraction"] = np.clip(np.linspace(dead_at_first, 2.0, 120), 0, 0.98) + 0.005 * made.ar1(rng, 120, 0.3)
    fall = np.clip((120 * made.U - (0 if early else 40)) / 6, 0, 1)
    table["entropy"] = 0.8 * 0.01**fall * np.exp(0.05 * made.ar1(rng, 120, 0.3))
    return table


def test_starved_from_the_start_comes_before_what_follows() -> None:
    order = made.flagged(collapsing(0.97))
    assert order.index("starved") < order.index("entropy collapse")
    order = made.flagged(collapsing(0.3))
    assert order.index("entropy collapse") < order.index("starved")


def test_an_entropy_that_fell_at_once_is_told_from_its_first_row() -> None:
    for early in (True, False):
        table = collapsing(0.3, early)
        found = next(own for own in diagnose(made.run(table)) if own.fault == "entropy collapse")
        first = f"the entropy went from {table['entropy'][0]:.3g} in the first of 120 steps to "
        assert found.because.startswith(first) == early
        assert found.present
