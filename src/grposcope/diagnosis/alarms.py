"""New flags of a run in progress, each said once per onset, at a level that allows for looking again and again. Ours.

Looking at a growing run m times at level α each gives more than α false alarms in the end. So each look spends a part
of α: the k-th look with anything to test, 1 ≤ k, is made at α_k = α / (k (k + 1)), and Σ α_k = α; by the union bound
the chance of any alarm in a run without failures stays below α, however long it is watched, as far as each look keeps
its level (docs/diagnosis.md). Looks are a tenth of the rows apart, so that α_k falls with the logarithm of the length.
What the record proves (p = 0) needs no level and is said at any look.

A mode is raised when it is flagged and was not at the look before. It is raised again only after a look at
which it was not flagged, and only with an onset after the step of its last alarm: an estimate that wanders is no news.
Modes that say that nothing happens yet (`MINOR`) are true of the first steps of any run, so they are raised only if
they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from grposcope.diagnosis.diagnose import LEVEL, ORDER, diagnose
from grposcope.diagnosis.findings import Finding
from grposcope.diagnosis.quantities import LEAST
from grposcope.diagnosis.verdict import MINOR, sentence
from grposcope.errors import UserError
from grposcope.runs.run import Run

GROWTH = 1.1
"""Rows at a look over rows at the look before."""

ANY = "flagged"
"""Stands for all modes that say that something goes wrong: all but `MINOR`."""


@dataclass(frozen=True)
class Alarm:
    """A mode that is newly flagged. step: the last of the run when it was; onset: where it began, None if unknown."""

    mode: str
    step: int
    onset: int | None
    confidence: float
    because: str
    advice: str

    def __str__(self) -> str:
        since = "" if self.onset is None else f", since step {self.onset:,}"
        return f"step {self.step:,}: {self.mode}{since}, because {self.because}; do: {self.advice}"


class Alarms:
    """Looks at a run while it grows.

    raised: alarms so far, also those of an earlier session, in which the run had grown to `rows` rows.
    asked: modes that are raised even if they are minor. findings, verdict, rows: of the last look.
    """

    def __init__(self, raised: Iterable[Alarm] = (), rows: int = 0, asked: Collection[str] = (), level: float = LEVEL):
        self.raised = list(raised)
        self.level = level
        self._quiet = set(MINOR) - set(asked)
        self.findings: tuple[Finding, ...] = ()
        self.verdict = ""
        self._active = {alarm.mode for alarm in self.raised}
        self._looks = math.ceil(math.log(rows / LEAST) / math.log(GROWTH)) + 1 if rows >= LEAST else 0
        self.rows, self._last = 0, 0

    def due(self, rows: int) -> bool:
        """Whether a run of `rows` rows has grown enough for another look, or is another run."""
        return rows >= max(self.rows + 1, math.ceil(GROWTH * self.rows)) or 0 < rows < self.rows

    def look(self, run: Run) -> list[Alarm]:
        """The alarms that are new; `findings` and `verdict` are then those of this look."""
        if not run.steps:
            return []
        step = int(run.table["step"][-1])
        if step < self._last:
            self._forget(step)
        self.rows, self._last = run.steps, step
        share = 1 / ((self._looks + 1) * (self._looks + 2))
        self.findings = diagnose(run, self.level * share)
        self._looks += any(finding.p > 0 for finding in self.findings)
        self.verdict = sentence(run, self.findings)
        flagged = [f for f in self.findings if f.status == "flagged" and f.mode not in self._quiet]
        new = [_alarm(finding, step) for finding in flagged if self._news(finding)]
        self._active = {finding.mode for finding in flagged}
        self.raised += new
        return new

    def _news(self, finding: Finding) -> bool:
        if finding.mode in self._active:
            return False
        before = [alarm for alarm in self.raised if alarm.mode == finding.mode]
        return not before or (finding.onset is not None and finding.onset > before[-1].step)

    def _forget(self, step: int) -> None:
        """The run went back to an earlier step, or is another one: alarms raised later are raised anew."""
        self.raised = [alarm for alarm in self.raised if alarm.step <= step]
        self._active &= {alarm.mode for alarm in self.raised}
        self._looks = 0


def chosen(modes: Iterable[str], flag: str) -> frozenset[str]:
    """Names of modes, `flagged` for all that go wrong; UserError, naming `flag`, for one that is none."""
    wanted = set(modes)
    unknown = sorted(wanted - {*ORDER, ANY})
    if unknown:
        raise UserError(f"{flag} {unknown[0]!r} is no mode; give {ANY} or one of: {', '.join(ORDER)}")
    if ANY in wanted:
        wanted |= set(ORDER) - set(MINOR)
    return frozenset(wanted - {ANY})


def document(alarm: Alarm, source: str) -> dict[str, Any]:
    """What a webhook is told of an alarm; `text` is the line that chat programs show."""
    return {"text": f"{source}: {alarm}", "run": source, **asdict(alarm)}


def _alarm(finding: Finding, step: int) -> Alarm:
    return Alarm(finding.mode, step, finding.onset, finding.confidence, finding.because, finding.advice)
