"""What changed in a run since the last look: its verdict, the status of each fault, and whether it goes on.

Each change is told once, so that a stream of them can be acted on by a program without comparing documents. The level
of every fault is that of the look (`watch.alarms`), so that a status may go back; an alarm (`Alarms`) does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grposcope.core.finding import Finding, document
from grposcope.instruments.diagnosis.verdict import Verdict
from grposcope.watch.advice import Advice, fresh

Event = Literal["start", "verdict", "fault", "advice", "stalled", "resumed", "unreadable", "readable"]

QUIET = ("excluded", "cannot tell")
"""Statuses that a fault may have at the first look without a line of its own."""


@dataclass(frozen=True)
class WatchedState:
    """What a look at a run found: the step, the verdict, the findings, and why nothing is written or can be read.

    stalled, problem: sentences, empty where it goes on and can be read. advice: all of it so far.
    """

    step: int = 0
    verdict: Verdict | None = None
    findings: Sequence[Finding] = ()
    stalled: str = ""
    problem: str = ""
    advice: Sequence[Advice] = ()


@dataclass(frozen=True)
class Change:
    """One change. before, after: grades of the verdict, or statuses of a fault; of advice, after is the action.

    finding: of the fault that it is about, or that the verdict names; None where there is none. text: the verdict and
    what to do, what an autopilot would do, or why nothing is written or can be read; empty where the finding says all.
    """

    event: Event
    step: int = 0
    before: str = ""
    after: str = ""
    finding: Finding | None = None
    text: str = ""

    def document(self, run: str, time: float) -> dict[str, Any]:
        """The change as a JSON object of the run `run`, seen at `time` in seconds since 1970."""
        return {
            "event": self.event, "time": time, "run": run, "step": self.step, "from": self.before or None,
            "to": self.after or None, "text": self.text or None,
            "finding": None if self.finding is None else document(self.finding),
        }  # fmt: skip


def _status(finding: Finding) -> str:
    """The status of a fault in a word: the grade of a flagged one."""
    return finding.grade or finding.status


def between(old: WatchedState, new: WatchedState) -> list[Change]:
    """The changes from one look to the next: the verdict first, then faults in their order, then whether it goes on.

    The verdict changes where its grade or its cause does; numbers in its line change at every look.
    """
    changes = _of_verdict(old, new)
    before = {finding.fault: _status(finding) for finding in old.findings}
    for finding in new.findings:
        was, now = before.get(finding.fault, ""), _status(finding)
        if was != now and (was or now not in QUIET):
            changes.append(Change("fault", new.step, was, now, finding))
    named = {finding.fault for finding in new.findings}
    for finding in old.findings:  # a test may tell another fault than before
        if new.findings and finding.grade and finding.fault not in named:
            gone = Finding(finding.fault, because="no longer present")
            changes.append(Change("fault", new.step, finding.grade, gone.status, gone))
    for advice in fresh(old.advice, new.advice):
        changes.append(Change("advice", advice.finding.seen or 0, "", advice.action, advice.finding, advice.do))
    if bool(old.stalled) != bool(new.stalled):
        changes.append(Change("stalled" if new.stalled else "resumed", new.step, text=new.stalled))
    if bool(old.problem) != bool(new.problem):
        changes.append(Change("unreadable" if new.problem else "readable", new.step, text=new.problem))
    return changes


def _of_verdict(old: WatchedState, new: WatchedState) -> list[Change]:
    if new.verdict is None or _known(old) == _known(new):
        return []
    verdict = new.verdict
    finding = next((finding for finding in new.findings if finding.fault == verdict.fault), None)
    before = old.verdict.word if old.verdict else ""
    text = f"{verdict.line}; what to do: {verdict.do}" if verdict.do else verdict.line
    return [Change("verdict", new.step, before, verdict.word, finding, text)]


def _known(state: WatchedState) -> tuple[str, str]:
    return (state.verdict.word, state.verdict.fault) if state.verdict else ("", "")
