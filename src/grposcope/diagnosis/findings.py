"""What a diagnosis says: findings, and what a rule hands back before the rules are weighed together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from grposcope.diagnosis.quantities import View

Status = Literal["ok", "flagged", "cannot tell"]


@dataclass(frozen=True)
class Evidence:
    """A measured number: what it is, its value, its standard error (NaN where it has none), and its limit in words."""

    what: str
    value: float
    se: float = math.nan
    limit: str = ""

    def __str__(self) -> str:
        error = f" ± {self.se:.2g}" if math.isfinite(self.se) and self.se > 0 else ""
        return f"{self.what} {self.value:.4g}{error}" + (f" ({self.limit})" if self.limit else "")


@dataclass(frozen=True)
class Verdict:
    """What one rule found in one run.

    p: p-value of "there is no such failure"; 0 where the record proves the failure, NaN where nothing was tested.
    because: the reason in a clause, with numbers. onset: step. mode, advice: where the rule tells apart what needs
    another name or remedy. missing: quantities that were not logged; without them, what is not flagged is not ok.
    explains: modes that follow from this one where they do not begin before it.
    """

    p: float
    because: str
    evidence: tuple[Evidence, ...] = ()
    onset: int | None = None
    mode: str = ""
    advice: str = ""
    missing: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()


def moved(change: float) -> str:
    """A change in words."""
    return f"rose by {change:.2g}" if change > 0 else f"fell by {-change:.2g}"


def unknown(because: str, *missing: str) -> Verdict:
    """The verdict of a rule that could test nothing."""
    return Verdict(math.nan, because, missing=missing)


@dataclass(frozen=True)
class Rule:
    """A failure mode and how it is recognised; `check` is pure.

    needs: quantities (of `vocabulary.VARIANTS`) without any of which it cannot tell. statistic, threshold: in words,
    for the documentation and --json; source: paper or "ours". proof: its p-value is 0 or 1, read off the record
    without noise, so that it takes no part in the adjustment for many tests.
    """

    mode: str
    needs: tuple[str, ...]
    statistic: str
    threshold: str
    source: str
    advice: str
    check: Callable[[View], Verdict]
    proof: bool = False


@dataclass(frozen=True)
class Finding:
    """The verdict of a rule on a run, weighed together with all others.

    p: the rule's own p-value, NaN if nothing was tested; adjusted: by Holm over the rules that tested something.
    confidence: 1 − adjusted for what is flagged, NaN otherwise: of runs without any failure, at most a share of
    1 − confidence shows a finding as strong. onset: step, None if not known. explains: modes that follow from this one
    where they do not begin before it.
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
