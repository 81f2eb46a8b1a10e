"""What every judge says of a fault: one `Finding`, whatever was looked at: a log, settings, rollouts, a live training.

A test or a check says what it saw and its p-value; a judge (`faults.judge`) weighs all that were made together and sets
the status, the adjusted p-value and the grade. Nothing else in the package says that something is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grposcope.core import display
from grposcope.core.errors import UserError
from grposcope.core.text import visible

Status = Literal["present", "possible", "cannot tell", "excluded"]
"""Whether a fault is there: shown; not shown, but near its limit or almost shown; not decided; not there, where a fault
that matters would have been seen."""

STATUSES: tuple[Status, ...] = ("present", "possible", "cannot tell", "excluded")
"""Every status, in the order in which findings are told."""

Basis = Literal["fact", "test"]
"""What a finding rests on: it is read off without noise, so that no p-value belongs to it; or a test with a p-value."""

Grade = Literal["failing", "warning", "note"]
"""How bad a fault is: it stops or reverses learning; it is on its way there or wastes most of the effort; or it stands
beside learning that goes well, where it may cost something else."""

GRADES: tuple[Grade, ...] = ("failing", "warning", "note")
"""Grades, the worst first."""


@dataclass(frozen=True)
class Sign:
    """Something that was seen: what it is, its value, its standard error (NaN where it has none), its limit in words.

    column: the column of the run's table that it was measured on; where: the file and line, or the setting with its
    value, that it was read from; both empty where there is none.
    """

    what: str
    value: float = math.nan
    se: float = math.nan
    limit: str = ""
    column: str = ""
    where: str = ""


Told = Literal["since", "at", "first at"]
"""What is said of a step: that something has lasted since, or was there at it alone."""


@dataclass(frozen=True)
class Interval:
    """The first step with a fault, and the steps `low` to `high` between which it lies, None where not known.

    told: "since" of what lasts; "at" of a single row, and "first at" of several, which begin nothing.
    """

    step: int
    low: int | None = None
    high: int | None = None
    told: Told = "since"

    @property
    def first(self) -> int:
        """The earliest step at which the fault may have begun."""
        return self.step if self.low is None else self.low

    @property
    def last(self) -> int:
        """The latest step at which the fault may have begun."""
        return self.step if self.high is None else self.high

    def __str__(self) -> str:
        """Since when, as a clause: "since step 61"."""
        return f"{self.told} step {self.step:,}"


@dataclass(frozen=True)
class Finding:
    """What was found of one fault.

    fault: its name in the catalogue. status: see Status; a test leaves it to the judge, a fact brings it along.
    because: what was seen, as a clause with numbers; brief: the same in the few words that a first line has room for.
    since: the first step with the fault, None where it is not known. evidence: the signs that it rests on.
    effect: what the fault does to the gradient, or what it may cost. remedy: what to do. decides: the cheapest
    measurement that would decide, where the status is not decided. missing: what is not logged or recorded and would
    be needed. p: of what was seen if there were no such fault, NaN for a fact and where nothing was tested. adjusted: p
    adjusted for all tests that were made together. grade: of a fault that is present. grades: beside learning that goes
    well and where it does not, where these are not the fault's own. explains: faults that follow from this one where
    they do not begin before it. source: the paper, documentation or thread that the test or check is from. seen: the
    step at which it was first shown while the run went on, None where the whole was looked at. past: the level is past
    the limit of the rule, whether or not that is shown. begins: what finds `since`, asked only where the fault is
    present.
    """

    fault: str
    status: Status = "excluded"
    basis: Basis = "test"
    because: str = ""
    brief: str = ""
    since: Interval | None = None
    evidence: tuple[Sign, ...] = ()
    effect: str = ""
    remedy: str = ""
    decides: str = ""
    missing: tuple[str, ...] = ()
    p: float = math.nan
    adjusted: float = math.nan
    grade: Grade | None = None
    grades: tuple[Grade, Grade] | None = None
    explains: tuple[str, ...] = ()
    source: str = ""
    seen: int | None = None
    past: bool = False
    begins: Callable[[], Interval | None] | None = None

    @property
    def onset(self) -> int | None:
        """The first step with the fault, without its interval."""
        return None if self.since is None else self.since.step

    @property
    def present(self) -> bool:
        """Whether the fault is shown."""
        return self.status == "present"

    @property
    def confidence(self) -> float:
        """1 less the adjusted p-value of a fault that is present, 1 for a fact; NaN for any other.

        At most a share 1 − confidence of runs without any fault shows one as strong.
        """
        if not self.present:
            return math.nan
        return 1.0 if self.basis == "fact" else 1 - self.adjusted

    def _repr_html_(self) -> str | None:
        """The finding as a notebook shows it."""
        html: str | None = display.drawn("Finding", self)
        return html

    def __repr__(self) -> str:
        """A line: how bad, which fault, since when, why, and what to do."""
        since = "" if self.since is None else f", {self.since}"
        do = f"; what to do: {self.remedy}" if self.present and self.remedy else ""
        return visible(
            f"<{type(self).__name__} {self.grade or self.status}: {self.fault}{since}, {self.because}{do}>", 600
        )


def measured(p: float, because: str, evidence: Sequence[Sign] = (), fault: str = "", **more: Any) -> Finding:
    """What a test saw, before it is weighed: `p` of it without the fault. more: further fields of the finding.

    fault: where the test tells several apart; empty for the one that it is a test of. status: "possible" where the
    level is so near the limit that it is worth a word, however sure it is inside.
    """
    return Finding(fault, because=because, evidence=tuple(evidence), p=p, **more)


def fact(
    present: bool, because: str, evidence: Sequence[Sign] = (), onset: int | None = None, fault: str = "", **more: Any
) -> Finding:
    """What was read off without noise. fault, more: as in `measured`."""
    status: Status = "present" if present else "excluded"
    return Finding(fault, status, "fact", because, evidence=tuple(evidence), **{"since": at(onset)} | more)


def cannot_tell(because: str, *missing: str, fault: str = "") -> Finding:
    """That nothing could be tested, and what would have been needed."""
    return Finding(fault, "cannot tell", because=because, missing=missing)


def at(step: int | None) -> Interval | None:
    """A first step whose interval is not known; None where the step is not."""
    return None if step is None else Interval(step)


def document(finding: Finding) -> dict[str, Any]:
    """A finding as JSON has it, without what only a judge needs."""
    since = finding.since
    content: Mapping[str, Any] = {
        "fault": finding.fault, "status": finding.status, "basis": finding.basis, "grade": finding.grade,
        "since": None if since is None else vars(since),
        "because": finding.because, "brief": finding.brief,
        "evidence": [
            {"what": sign.what, "value": sign.value, "se": sign.se, "limit": sign.limit, "column": sign.column,
             "where": sign.where}
            for sign in finding.evidence
        ],
        "effect": finding.effect, "remedy": finding.remedy, "decides": finding.decides,
        "missing": list(finding.missing), "p": finding.p, "adjusted": finding.adjusted,
        "confidence": finding.confidence, "source": finding.source, "seen": finding.seen,
    }  # fmt: skip
    return dict(content)


def of_document(content: Mapping[str, Any], where: str) -> Finding:
    """The finding that `document` wrote, or an alarm of a record of an earlier version; UserError naming `where`."""
    try:
        since = content.get("since")
        onset = content.get("onset") if since is None else None
        confidence = content.get("confidence")
        return Finding(
            str(content["fault"] if "fault" in content else content["mode"]),
            content.get("status", "present"),
            content.get("basis", "test"),
            str(content.get("because", "")),
            str(content.get("brief", "")),
            since=at(onset) if since is None else _interval(since),
            evidence=tuple(_sign(each) for each in content.get("evidence", ())),
            effect=str(content.get("effect", "")),
            remedy=str(content["remedy"] if "remedy" in content else content["advice"]),
            decides=str(content.get("decides", "")),
            missing=tuple(content.get("missing", ())),
            p=_number(content.get("p")),
            adjusted=_number(content["adjusted"]) if "adjusted" in content else 1 - _number(confidence),
            grade=content["grade"],
            seen=int(content["seen"] if "seen" in content else content["step"]),
            source=str(content.get("source", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{where}: no finding ({error}); delete the line") from None


def _interval(content: Mapping[str, Any]) -> Interval:
    return Interval(content["step"], content.get("low"), content.get("high"), content.get("told", "since"))


def _sign(content: Mapping[str, Any]) -> Sign:
    words = {name: str(content.get(name, "")) for name in ("limit", "column", "where")}
    return Sign(str(content["what"]), _number(content.get("value")), _number(content.get("se")), **words)


def _number(value: Any) -> float:
    """A number of JSON, in which those that are not finite are strings, or None for NaN."""
    return math.nan if value is None else float(value)
