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
from grposcope.watch.advice import Advice

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
