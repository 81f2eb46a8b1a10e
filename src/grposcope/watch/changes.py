"""What changed in a run since the last look: its verdict, the status of each rule, and whether it goes on.

Each change is told once, so that a stream of them can be acted on by a program without comparing documents. The level
of every rule is that of the look (`watch.alarms`), so that a status may go back; an alarm (`Alarms`) does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grposcope.core.finding import Finding
from grposcope.instruments.diagnosis.verdict import Verdict
from grposcope.watch.advice import Advice, fresh

Event = Literal["start", "verdict", "rule", "advice", "stalled", "resumed", "unreadable", "readable"]

QUIET = ("excluded", "cannot tell")
"""Statuses that a rule may have at the first look without a line of its own."""


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
    """One change. before, after: grades of the verdict, or statuses of the rule; empty for other events.

    rule: the failure mode, or that of the verdict's first line. onset: step at which it began, None if not known.
    cause: why, in words; advice: what to do.
    """

    event: Event
    step: int = 0
    rule: str = ""
    before: str = ""
    after: str = ""
    onset: int | None = None
    cause: str = ""
    advice: str = ""

    def document(self, run: str, time: float) -> dict[str, Any]:
        """The change as a JSON object of the run `run`, seen at `time` in seconds since 1970."""
        return {
            "event": self.event, "time": time, "run": run, "step": self.step, "rule": self.rule or None,
            "from": self.before or None, "to": self.after or None, "onset": self.onset,
            "cause": self.cause or None, "advice": self.advice or None,
        }  # fmt: skip


def status(finding: Finding) -> str:
    """The status of a rule in a word: the grade of a flagged one."""
    return finding.grade or finding.status


def between(old: WatchedState, new: WatchedState) -> list[Change]:
    """The changes from one look to the next: the verdict first, then rules in their order, then whether it goes on.

    The verdict changes where its grade or its cause does; numbers in its line change at every look.
    """
    changes = _of_verdict(old, new)
    before = {finding.fault: status(finding) for finding in old.findings}
    for finding in new.findings:
        was, now = before.get(finding.fault, ""), status(finding)
        if was != now and (was or now not in QUIET):
            changes.append(Change("rule", new.step, finding.fault, was, now, finding.onset, finding.because,
                                  finding.remedy if finding.grade else ""))  # fmt: skip
    named = {finding.fault for finding in new.findings}
    for finding in old.findings:  # a rule may give its failure another name
        if new.findings and finding.grade and finding.fault not in named:
            changes.append(
                Change("rule", new.step, finding.fault, finding.grade, "excluded", cause="no longer present")
            )
    for one in fresh(old.advice, new.advice):
        changes.append(Change("advice", one.step, one.monitor, "", one.action, one.since, one.cause, one.advice))
    if bool(old.stalled) != bool(new.stalled):
        changes.append(Change("stalled" if new.stalled else "resumed", new.step, cause=new.stalled))
    if bool(old.problem) != bool(new.problem):
        changes.append(Change("unreadable" if new.problem else "readable", new.step, cause=new.problem))
    return changes


def _of_verdict(old: WatchedState, new: WatchedState) -> list[Change]:
    if new.verdict is None or _known(old) == _known(new):
        return []
    verdict = new.verdict
    onset = next((finding.onset for finding in new.findings if finding.fault == verdict.fault), None)
    before = old.verdict.word if old.verdict else ""
    return [Change("verdict", new.step, verdict.fault, before, verdict.word, onset, verdict.line, verdict.do)]


def _known(state: WatchedState) -> tuple[str, str]:
    return (state.verdict.word, state.verdict.fault) if state.verdict else ("", "")
