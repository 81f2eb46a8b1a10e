"""The records of a diagnosis: a rule, what it returns for one run, and the finding after all rules are weighed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grposcope.core.text import visible
from grposcope.instruments.diagnosis.quantities import Quantities
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.maths.timeseries.noise import harmonic_mean

Status = Literal["ok", "near the limit", "flagged", "cannot tell"]

Grade = Literal["failing", "warning", "note"]
"""How bad a flagged finding is: it stops or reverses learning; it is on its way there or wastes most of the effort; or
it stands beside learning that goes well, where it may cost something else."""

GRADES: tuple[Grade, ...] = ("failing", "warning", "note")
"""Grades, the worst first."""

OWN_METHOD = "method of this project, unpublished"
"""Source of the rules that no paper describes."""


@dataclass(frozen=True)
class Evidence:
    """A measured number: what it is, its value, its standard error (NaN where it has none), and its limit in words.

    column: the column of the run's table that it was measured on, empty where there is none.
    """

    what: str
    value: float
    se: float = math.nan
    limit: str = ""
    column: str = ""


def early_level(name: str, value: float, se: float) -> Evidence:
    """Evidence of the level of a column over the first part of a run, EARLY."""
    return Evidence(f"{name}, first {EARLY[1]:.0%}", value, se, column=name)


def late_level(name: str, value: float, se: float, limit: str = "") -> Evidence:
    """Evidence of the level of a column over the last part of a run, LATE."""
    return Evidence(f"{name}, last {1 - LATE[0]:.0%}", value, se, limit, name)


@dataclass(frozen=True)
class RuleResult:
    """Result of one rule for one run.

    p: p-value of "there is no such failure"; 0 where the record proves the failure, NaN where nothing was tested.
    because: the reason as a clause with numbers. onset: step at which the failure begins, None if not known.
    mode, advice: given where a rule tells apart failures that need another name or remedy than the rule's own.
    missing: quantities that were not logged, or on too few rows; without them, a run that is not flagged is not called
    ok.
    explains: modes that follow from this one where they do not begin before it.
    beside, instead: grades beside learning that goes well and where it does not, where they are not the rule's own.
    near: the level is so near the limit that it is worth a word, however sure it is inside.
    brief: the same in the few words that a first line has room for, with the log's own key. proof: as in `Rule`.
    """

    p: float
    because: str
    evidence: tuple[Evidence, ...] = ()
    onset: int | None = None
    mode: str = ""
    advice: str = ""
    missing: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    beside: Grade | None = None
    instead: Grade | None = None
    near: bool = False
    brief: str = ""
    proof: bool = False


def cannot_tell(because: str, *missing: str) -> RuleResult:
    """The result of a rule that could test nothing, with the quantities that it would have needed."""
    return RuleResult(math.nan, because, missing=missing)


def least_of(tests: Sequence[RuleResult]) -> RuleResult:
    """The test with the least p-value, times the number of tests, and without an onset where that is 0.5 or more."""
    least = min(tests, key=lambda test: test.p)
    p = min(1.0, least.p * len(tests))
    return replace(least, p=p, onset=least.onset if p < 0.5 else None)


def any_of(tests: Sequence[RuleResult]) -> RuleResult:
    """The test with the least p-value, with the harmonic mean of all: for tests that mostly see the same thing."""
    return replace(min(tests, key=lambda test: test.p), p=harmonic_mean([test.p for test in tests]))


def moved(change: float) -> str:
    """A change as a verb phrase: "rose by 0.2"."""
    if change == 0:
        return "did not change"
    return f"rose by {change:.2g}" if change > 0 else f"fell by {-change:.2g}"


@dataclass(frozen=True)
class Rule:
    """A failure mode and how it is recognised.

    check: a pure function. A quantity that it asks for by `Quantities.require` and that is not logged ends it; the
    finding is then "cannot tell".
    needs: quantities (keys of `core.metrics.VARIANTS`) without which the rule cannot tell. statistic, threshold: in
    words, for JSON and the documentation. source: paper, or OWN_METHOD. advice: what to do, unless the result brings
    its own. proof: the p-value is 0 or 1 and read off the record without noise, so the rule takes no part in the
    adjustment for many tests. minor: the mode says that nothing happens rather than that something goes wrong.
    beside: the grade of the mode beside learning that goes well; instead: its grade where the run stalled, fell, lost
    what it had learned or never learned; costs: what it may cost beside learning that goes well, as a clause.
    limit: the rule tests whether a level is beyond a limit, so that the level is clearly inside only where p is near 1.
    gamed: the training reward does not show the outcome where this mode is flagged, so that only a held-out score does.
    """

    mode: str
    needs: tuple[str, ...]
    statistic: str
    threshold: str
    source: str
    advice: str
    check: Callable[[Quantities], RuleResult]
    proof: bool = False
    minor: bool = False
    beside: Grade = "note"
    instead: Grade = "failing"
    costs: str = ""
    gamed: bool = False
    limit: bool = False


@dataclass(frozen=True)
class Finding:
    """Finding of one rule, weighed together with all others.

    p: the rule's own p-value, NaN if nothing was tested. adjusted: p adjusted by Holm's method over the rules that
    tested something. confidence: 1 − adjusted for a flagged mode, NaN otherwise; at most a share 1 − confidence of the
    runs without any failure shows a finding as strong. onset: step, None if not known. missing: quantities that no row
    has, to be logged. brief: the reason in the few words that a first line has room for.
    explains: modes that follow from this one where they do not begin before it. grade: of a flagged mode, else None;
    costs: what a mode that is a note may cost.
    """

    mode: str
    status: Status
    because: str
    evidence: tuple[Evidence, ...]
    advice: str
    source: str
    p: float
    adjusted: float
    confidence: float
    onset: int | None
    missing: tuple[str, ...]
    explains: tuple[str, ...] = ()
    grade: Grade | None = None
    costs: str = ""
    brief: str = ""

    def __repr__(self) -> str:
        """A line: how bad, which mode, since when, why, and what to do."""
        since = f", since step {self.onset:,}" if self.onset is not None else ""
        do = f"; what to do: {self.advice}" if self.status == "flagged" and self.advice else ""
        return visible(
            f"<{type(self).__name__} {self.grade or self.status}: {self.mode}{since}, {self.because}{do}>", 600
        )
