"""Small things that tests of a log share: evidence of levels, tests that are weighed together, changes in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grposcope.core.finding import Finding, Sign
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.maths.timeseries.noise import harmonic_mean


def early_level(name: str, value: float, se: float) -> Sign:
    """The level of a column over the first part of a run, EARLY."""
    return Sign(f"{name}, first {EARLY[1]:.0%}", value, se, column=name)


def late_level(name: str, value: float, se: float, limit: str = "") -> Sign:
    """The level of a column over the last part of a run, LATE."""
    return Sign(f"{name}, last {1 - LATE[0]:.0%}", value, se, limit, name)


def least_of(tests: Sequence[Finding]) -> Finding:
    """The test with the least p-value, times the number of tests."""
    least = min(tests, key=lambda test: test.p)
    return replace(least, p=min(1.0, least.p * len(tests)))


def any_of(tests: Sequence[Finding]) -> Finding:
    """The test with the least p-value, with the harmonic mean of all: for tests that mostly see the same thing."""
    return replace(min(tests, key=lambda test: test.p), p=harmonic_mean([test.p for test in tests]))


def moved(change: float) -> str:
    """A change as a verb phrase: "rose by 0.2"."""
    if change == 0:
        return "did not change"
    return f"rose by {change:.2g}" if change > 0 else f"fell by {-change:.2g}"
