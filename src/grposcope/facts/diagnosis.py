"""Statements about the findings of a run: the verdict, a description of each finding, and the line of an alarm."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from grposcope.diagnosis import diagnose, run_outcome
from grposcope.diagnosis.alarms import Alarm, Wanted, at_least
from grposcope.diagnosis.alerts import Alert
from grposcope.diagnosis.findings import GRADES, Evidence, Finding, Grade, Status
from grposcope.diagnosis.quantities import Quantities
from grposcope.facts import learning
from grposcope.runs.run import Run
from grposcope.runs.trainers import how_to_log

Word = Literal["failing", "warning", "healthy", "cannot tell"]
"""The first word of a verdict: the worst grade, or healthy where nothing is worse than a note."""

FEW = 3
"""Modes that cannot be told which the first line names; the list below it has all of them."""


@dataclass(frozen=True)
class Verdict:
    """The first thing to know of a run: what is wrong, since when, why, and what to do; or healthy; or cannot tell.

    word: the worst grade. conclusion: begins with it: "failing: entropy collapse, since step 81" or "healthy: …".
    because, advice: of the worst mode, empty where the worst is a note. others: number of modes that are failing or a
    warning besides it. outcome: what became of the run, where the conclusion does not say so. notes: a clause per mode
    that is a note. near: a clause per mode that is near its limit. untold: modes that cannot be told, if none is
    flagged.
    """

    word: Word
    conclusion: str
    because: str = ""
    advice: str = ""
    others: int = 0
    outcome: str = ""
    notes: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    near: tuple[str, ...] = ()

    @property
    def clauses(self) -> tuple[str, ...]:
        """Clauses that follow the conclusion: the reason, the advice, the outcome, notes, and what cannot be told."""
        others = f" (and {self.others} more)" if self.others else ""
        return (
            *([f"because {self.because}"] if self.because else []),
            *([self.outcome] if self.outcome else []),
            *([f"do: {self.advice}{others}"] if self.advice else []),
            *(f"note: {note}" for note in self.notes),
            *(f"near the limit: {finding}" for finding in self.near),
            *([f"{self._untold}: {_few(self.untold)}"] if self.untold else []),
        )

    @property
    def _untold(self) -> str:
        """What is said before the modes that cannot be told, in other words where the conclusion said these."""
        return "not enough is logged for" if self.word == "cannot tell" else "cannot tell"

    def __str__(self) -> str:
        if not self.clauses:
            return self.conclusion
        return f"{self.conclusion}{', ' if self.because else '; '}{'; '.join(self.clauses)}"


@dataclass(frozen=True)
class Description:
    """A finding in words. evidence: a phrase per number. to_log: quantity -> how to log it, where one is missing."""

    mode: str
    status: Status
    grade: Grade | None
    onset: int | None
    confidence: float
    p: float
    because: str
    evidence: tuple[str, ...]
    advice: str
    to_log: dict[str, str]


_JUDGED: dict[int, tuple[weakref.ref[Run], tuple[Finding, ...]]] = {}


def findings_of(run: Run) -> tuple[Finding, ...]:
    """The findings of a run, looked for once; none without steps."""
    key = id(run)
    kept = _JUDGED.get(key)
    if kept is None or kept[0]() is not run:
        kept = weakref.ref(run, lambda _: _JUDGED.pop(key, None)), diagnose(run) if run.steps else ()
        _JUDGED[key] = kept
    return kept[1]


def verdict(run: Run, findings: Sequence[Finding]) -> Verdict:
    """The verdict on a run from its findings, in the order in which `diagnose` returns them."""
    quantities = Quantities(run)
    outcome = run_outcome.of_run(quantities)
    flagged = [finding for finding in findings if finding.status == "flagged"]
    bad = [finding for finding in flagged if finding.grade != "note"]
    notes = tuple(_note(finding) for finding in flagged if finding.grade == "note")
    near = tuple(f"{finding.mode}, {finding.because}" for finding in findings if finding.status == "near the limit")
    said = learning.outcome_clause(outcome, learning.steps(run))
    if said and outcome.fate == "cannot tell" and not outcome.heldout:
        said = learning.reward_clause(run, outcome)
    if bad:
        first = bad[0]
        word: Word = "failing" if first.grade == "failing" else "warning"
        conclusion = f"{word}: {first.mode}{_since(first.onset)}"
        return Verdict(
            word, conclusion, first.because, first.advice, len(bad) - 1, said if outcome.well else "", notes, near=near
        )
    untold = () if flagged else tuple(finding.mode for finding in findings if finding.status == "cannot tell")
    if outcome.fate in ("lost", "fell"):
        return Verdict("warning", f"warning: {said}", notes=notes, untold=untold, near=near)
    if outcome.well or outcome.fate == "stalled":
        return Verdict("healthy", f"healthy: {said}", notes=notes, untold=untold, near=near)
    if not run.steps:
        return Verdict("cannot tell", "cannot tell: no optimiser step is recorded yet")
    if not said:
        return Verdict("cannot tell", f"cannot tell: {quantities.absence('reward')}", notes=notes)
    return Verdict("cannot tell", f"cannot tell: {said}", notes=notes, untold=untold, near=near)


def _few(modes: Sequence[str]) -> str:
    """The first of these modes, and how many more there are."""
    rest = len(modes) - FEW
    return ", ".join(modes[:FEW]) + (f" and {rest} more" if rest > 0 else "")


def _note(finding: Finding) -> str:
    """A mode that is a note: what was seen, and what it may cost."""
    return f"{finding.mode}: {finding.because}" + (f" ({finding.costs})" if finding.costs else "")


def exceeds(verdict: Verdict, findings: Sequence[Finding], wanted: Wanted) -> bool:
    """Whether a mode that is wanted is flagged, or the verdict or any flagged mode is of the wanted grade or worse."""
    grades = [finding.grade for finding in findings if finding.grade is not None]
    grades += [grade for grade in GRADES if grade == verdict.word]
    too_bad = any(at_least(grade, wanted.grade) for grade in grades) if wanted.grade is not None else False
    return too_bad or bool(wanted.modes.intersection(flagged_modes(findings)))


def describe(finding: Finding, engine: str = "") -> Description:
    """A finding in words. engine: the trainer of the run, whose way to log what is missing is named."""
    return Description(
        finding.mode,
        finding.status,
        finding.grade,
        finding.onset,
        finding.confidence,
        finding.p,
        finding.because,
        tuple(_phrase(evidence) for evidence in finding.evidence),
        finding.advice,
        {name: how_to_log(name, engine) for name in finding.missing},
    )


def flagged_modes(findings: Sequence[Finding]) -> list[str]:
    """The modes that are flagged, in the order of what to look at first."""
    return [finding.mode for finding in findings if finding.status == "flagged"]


def alarm_line(alarm: Alarm) -> str:
    """An alarm in one line."""
    what = f"{alarm.grade}: {alarm.mode}{_since(alarm.onset)}"
    return f"step {alarm.step:,}: {what}, because {alarm.because}; do: {alarm.advice}"


def alarm_alert(alarm: Alarm, source: str) -> Alert:
    """What the receivers of alerts are told of an alarm in the run `source`."""
    title = f"{alarm.grade}: {alarm.mode}{_since(alarm.onset)}"
    text = f"step {alarm.step:,}, because {alarm.because}; do: {alarm.advice}"
    document = {"text": f"{source}: {alarm_line(alarm)}", "run": source, **asdict(alarm)}
    return Alert(source, title, text, alarm.grade, alarm.mode, alarm.step, document)


def verdict_alert(verdict: Verdict, findings: Sequence[Finding], source: str) -> Alert:
    """What the receivers of alerts are told of the verdict on a run `source` as a whole."""
    document = {"text": f"{source}: {verdict}", "source": source, "grade": verdict.word,
                "flagged": flagged_modes(findings)}  # fmt: skip
    return Alert(source, verdict.conclusion, "; ".join(verdict.clauses), verdict.word, document=document)


def _phrase(evidence: Evidence) -> str:
    """An evidence with its standard error and its limit."""
    error = f" ± {evidence.se:.2g}" if math.isfinite(evidence.se) and evidence.se > 0 else ""
    limit = f" ({evidence.limit})" if evidence.limit else ""
    return f"{evidence.what} {evidence.value:.4g}{error}{limit}"


def _since(onset: int | None) -> str:
    return "" if onset is None else f", since step {onset:,}"
