"""What an autopilot would do about a run that is watched: advice for whoever trains it, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.finding import Finding, document
from grposcope.core.run import Run
from grposcope.instruments import has, needed


@dataclass(frozen=True)
class Advice:
    """What an autopilot would do about a finding. action: "tell", "change", "rollback" or "stop"; do: the same in
    words."""

    finding: Finding
    action: str
    do: str

    def document(self) -> dict[str, Any]:
        """The advice as a JSON object."""
        return {"action": self.action, "do": self.do, "finding": document(self.finding)}

    def __str__(self) -> str:
        finding = self.finding
        return f"step {finding.seen or 0:,}: {finding.brief or finding.fault}: {finding.because}. {self.do}"


Adviser = Callable[[Run, Sequence[Finding]], tuple[Advice, ...]]
"""All advice about a run so far, given the alarms that were raised, in the order of their steps."""


def adviser(policy: str) -> Adviser:
    """What advises by a policy such as "advise" or "advise:fall=0.2"; UserError for one that acts."""
    if not has("autopilot"):
        raise UserError(needed(["autopilot"]))
    from grposcope.instruments.autopilot import answer, wording
    from grposcope.instruments.autopilot.policy import parse
    from grposcope.instruments.autopilot.replay import replay

    read = parse(policy)
    if read.mode != "advise":
        raise UserError(f"autopilot {policy!r}: watch can only advise, not act; use advise, with its limits")

    def advise(run: Run, alarms: Sequence[Finding]) -> tuple[Advice, ...]:
        story = replay(run, read)
        decided = [
            Advice(decision.why, decision.action, wording.action(decision))
            for decision in story.decisions
            if isinstance(decision.why, Finding)
        ]
        told = [
            Advice(alarm, "tell", answer.left_to_others(alarm, run, story, read))
            for alarm in alarms
            if alarm.grade == "failing" and not answer.decided_by(alarm, story)
        ]
        return tuple(sorted([*decided, *told], key=lambda each: each.finding.seen or 0))

    return advise


def fresh(before: Sequence[Advice], now: Sequence[Advice]) -> list[Advice]:
    """What was not said before; a look at more of a run never takes earlier advice back."""
    said = {(advice.finding.seen, advice.finding.fault) for advice in before}
    return [advice for advice in now if (advice.finding.seen, advice.finding.fault) not in said]
