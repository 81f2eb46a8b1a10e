"""Alarms: modes newly flagged in a run in progress, each raised once per onset. Method of this project; no publication.

Looking at a growing run m times at level α each gives more than α false alarms in the end. So each look spends a part
of α: the k-th look with anything to test, 1 ≤ k, is made at α_k = α / (k (k + 1)), and Σ α_k = α; by the union bound
the chance of any alarm in a run without failures stays below α, however long it is watched, as far as each look keeps
its level (docs/diagnosis.md). Looks are a tenth of the rows apart, so that α_k falls with the logarithm of the length.
What the record proves (p = 0) needs no level and is raised at any look.

A mode is raised when it is flagged and was not at the look before. It is raised again only after a look at which it
was not flagged, and only with an onset after the step of its last alarm, since the estimate of an onset wanders.
Minor modes, which say that nothing happens yet, are true of the first steps of any run, so they are raised only on
request.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from grposcope.diagnosis.diagnose import LEVEL, diagnose
from grposcope.diagnosis.findings import Finding
from grposcope.diagnosis.quantities import LEAST
from grposcope.diagnosis.rules import RULES, minor_modes
from grposcope.errors import UserError
from grposcope.runs.run import Run

GROWTH = 1.1
"""Rows at a look over rows at the look before."""

ANY = "flagged"
"""Stands for all modes but the minor ones where modes are given by name."""


@dataclass(frozen=True)
class Alarm:
    """A mode that is newly flagged. step: the last of the run when it was; onset: where it began, None if unknown."""

    mode: str
    step: int
    onset: int | None
    confidence: float
    because: str
    advice: str


class Alarms:
    """Looks at a run while it grows.

    raised: alarms so far, also those of an earlier session, in which the run had grown to `rows` rows.
    minor: minor modes that are raised nevertheless. findings, rows: those of the last look.
    """

    def __init__(self, raised: Iterable[Alarm] = (), rows: int = 0, minor: Collection[str] = (), level: float = LEVEL):
        self.raised = list(raised)
        self.level = level
        self._silent = minor_modes() - set(minor)
        self.findings: tuple[Finding, ...] = ()
        self._active = {alarm.mode for alarm in self.raised}
        self._looks = math.ceil(math.log(rows / LEAST) / math.log(GROWTH)) + 1 if rows >= LEAST else 0
        self.rows, self._last = 0, 0

    def due(self, rows: int) -> bool:
        """Whether a run of `rows` rows has grown enough for another look, or is another run."""
        return rows >= max(self.rows + 1, math.ceil(GROWTH * self.rows)) or 0 < rows < self.rows

    def look(self, run: Run) -> list[Alarm]:
        """Diagnose the run at the level of this look; returns the new alarms."""
        if not run.steps:
            return []
        step = int(run.table["step"][-1])
        if step < self._last:
            self._forget(step)
        self.rows, self._last = run.steps, step
        share = 1 / ((self._looks + 1) * (self._looks + 2))
        self.findings = diagnose(run, self.level * share)
        self._looks += any(finding.p > 0 for finding in self.findings)
        flagged = [f for f in self.findings if f.status == "flagged" and f.mode not in self._silent]
        new = [
            Alarm(finding.mode, step, finding.onset, finding.confidence, finding.because, finding.advice)
            for finding in flagged
            if self._is_new(finding)
        ]
        self._active = {finding.mode for finding in flagged}
        self.raised += new
        return new

    def _is_new(self, finding: Finding) -> bool:
        if finding.mode in self._active:
            return False
        before = [alarm for alarm in self.raised if alarm.mode == finding.mode]
        return not before or (finding.onset is not None and finding.onset > before[-1].step)

    def _forget(self, step: int) -> None:
        """Drop alarms after `step`: the run went back to it, or is another one, and they may be raised anew."""
        self.raised = [alarm for alarm in self.raised if alarm.step <= step]
        self._active &= {alarm.mode for alarm in self.raised}
        self._looks = 0


def modes(names: Iterable[str]) -> frozenset[str]:
    """Modes by name, ANY standing for all but the minor ones; UserError for a name that is no mode."""
    wanted = set(names)
    unknown = sorted(wanted - {*RULES, ANY})
    if unknown:
        raise UserError(f"{unknown[0]!r} is no mode of failure; give {ANY} or one of: {', '.join(RULES)}")
    if ANY in wanted:
        wanted |= set(RULES) - minor_modes()
    return frozenset(wanted - {ANY})
