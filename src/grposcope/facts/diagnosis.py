"""Statements about the findings of a run: the verdict, a description of each finding, and the line of an alarm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from grposcope.diagnosis.alarms import Alarm
from grposcope.diagnosis.findings import Evidence, Finding, Status
from grposcope.diagnosis.quantities import Quantities
from grposcope.diagnosis.rules import minor_modes
from grposcope.facts import learning
from grposcope.runs.run import Run
from grposcope.runs.trainers import how_to_log


@dataclass(frozen=True)
class Verdict:
    """The first thing to know of a run: what is wrong, since when, why, and what to do; or healthy; or cannot tell.

    conclusion: "failing: entropy collapse, since step 81" or "healthy: …". because, advice: of the first flagged mode,
    else empty. others: number of modes flagged besides it. untold: modes that cannot be told, if none is flagged.
    """

    conclusion: str
    because: str = ""
    advice: str = ""
    others: int = 0
    untold: tuple[str, ...] = ()

    @property
    def clauses(self) -> tuple[str, ...]:
        """Clauses that follow the conclusion: the reason, the advice, and what else was found."""
        others = f" (and {self.others} more)" if self.others else ""
        return (
            *([f"because {self.because}", f"do: {self.advice}{others}"] if self.because else []),
            *([f"cannot tell: {', '.join(self.untold)}"] if self.untold else []),
        )

    def __str__(self) -> str:
        if not self.clauses:
            return self.conclusion
        return f"{self.conclusion}{', ' if self.because else '; '}{'; '.join(self.clauses)}"


@dataclass(frozen=True)
class Description:
    """A finding in words. evidence: a phrase per number. to_log: quantity -> how to log it, where one is missing."""

    mode: str
    status: Status
    onset: int | None
    confidence: float
    p: float
    because: str
    evidence: tuple[str, ...]
    advice: str
    to_log: dict[str, str]


def verdict(run: Run, findings: Sequence[Finding]) -> Verdict:
    """The verdict on a run from its findings, in the order in which `diagnose` returns them."""
    flagged = [finding for finding in findings if finding.status == "flagged"]
    if flagged:
        first = flagged[0]
        state = "not learning" if first.mode in minor_modes() else "failing"
        return Verdict(f"{state}: {first.mode}{_since(first.onset)}", first.because, first.advice, len(flagged) - 1)
    quantities = Quantities(run)
    if quantities.get("reward") is None:
        return Verdict(f"cannot tell: {quantities.absence('reward')}")
    learned = learning.training_reward(run)
    state = "healthy" if learned.verdict == "up" else "no failure found"
    untold = tuple(finding.mode for finding in findings if finding.status == "cannot tell")
    return Verdict(f"{state}: {learned.clause}", untold=untold)


def describe(finding: Finding, engine: str = "") -> Description:
    """A finding in words. engine: the trainer of the run, whose way to log what is missing is named."""
    return Description(
        finding.mode,
        finding.status,
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
    return f"step {alarm.step:,}: {alarm.mode}{_since(alarm.onset)}, because {alarm.because}; do: {alarm.advice}"


def alarm_message(alarm: Alarm, source: str) -> dict[str, Any]:
    """The document that a webhook gets of an alarm; `text` is the line that chat programs show."""
    return {"text": f"{source}: {alarm_line(alarm)}", "run": source, **asdict(alarm)}


def _phrase(evidence: Evidence) -> str:
    """An evidence with its standard error and its limit."""
    error = f" ± {evidence.se:.2g}" if math.isfinite(evidence.se) and evidence.se > 0 else ""
    limit = f" ({evidence.limit})" if evidence.limit else ""
    return f"{evidence.what} {evidence.value:.4g}{error}{limit}"


def _since(onset: int | None) -> str:
    return "" if onset is None else f", since step {onset:,}"
