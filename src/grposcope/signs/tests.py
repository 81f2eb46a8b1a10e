"""Small things that tests of a log share: evidence of levels, tests that are weighed together, changes in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grposcope.core.finding import Finding, Sign
from grposcope.core.text import apart, digits_of_shares, number, percent
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.maths.timeseries.noise import harmonic_mean
from grposcope.signs.outcome import Outcome
from grposcope.signs.quantities import MetricSeries


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


def went(series: MetricSeries) -> str:
    """From which level to which a metric went, as a verb phrase: "rose from 0.2 to 0.4"."""
    first, last = series.present.first.value, series.present.last.value
    if first == last:
        return f"stayed at {number(last)}"
    return f"{'rose' if last > first else 'fell'} from {' to '.join(apart(first, last))}"


def ends(series: MetricSeries, limit: str = "") -> tuple[Sign, Sign]:
    """Its first and its last level; a last one that begins behind a sudden fall says over how much of the run it is."""
    seen, name = series.present, series.name
    late = f"{name}, last {1 - seen.last_part[0]:.0%}"
    return (
        early_level(name, seen.first.value, seen.first.se),
        Sign(late, seen.last.value, seen.last.se, limit, name),
    )


def fell(outcome: Outcome, shares: bool = False) -> str:
    """From which level to which the metric of an outcome went, the best first where the end is below it: "fell from
    0.6 (around step 80) to 0.4". shares: it is shown in per cent."""
    start, best, end = outcome.start, outcome.best, outcome.end
    if best.value <= end.value:
        a, b = _apart(start.value, end.value, shares)
        return f"stayed at {b}" if a == b else f"rose from {a} to {b}"
    if start.value >= best.value:
        return "fell from {} to {}".format(*_apart(start.value, end.value, shares))
    a, b = _apart(best.value, end.value, shares)
    return f"fell from {a} (around step {outcome.best_step:,}) to {b}"


def _apart(first: float, last: float, shares: bool) -> tuple[str, str]:
    """Two levels as the sentence on the outcome has them; shares with a decimal where they need it to be apart."""
    digits = digits_of_shares(first, last)
    shown = [percent(value, digits) if shares else number(value) for value in (first, last)]
    if shares and shown[0] == shown[1]:
        shown = [percent(value, digits + 1) for value in (first, last)]
    return shown[0], shown[1]
