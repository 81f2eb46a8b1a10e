"""What an autopilot would do about a run that is watched: advice for whoever trains it, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grposcope.core.errors import UserError
from grposcope.core.run import Run
from grposcope.instruments import has, needed
from grposcope.watch.alerts import Alert


@dataclass(frozen=True)
class Advice:
    """One decision of an autopilot at `step`. since: the step from which it counts, None if not known.

    action: "tell", "change", "rollback" or "stop". cause, advice: why and what to do, in words.
    """

    step: int
    monitor: str
    action: str
    since: int | None
    cause: str
    advice: str


Adviser = Callable[[Run], tuple[Advice, ...]]
"""All advice about a run so far, in order."""


def adviser(policy: str) -> Adviser:
    """What advises by a policy such as "advise" or "advise:fall=0.2"; UserError for one that acts."""
    if not has("autopilot"):
        raise UserError(needed(["autopilot"]))
    from grposcope.instruments.autopilot import wording
    from grposcope.instruments.autopilot.policy import parse
    from grposcope.instruments.autopilot.replay import replay

    read = parse(policy)
    if read.mode != "advise":
        raise UserError(f"autopilot {policy!r}: watch can only advise, not act; use advise, with its limits")

    def advise(run: Run) -> tuple[Advice, ...]:
        decisions = replay(run, read).decisions
        return tuple(
            Advice(one.step, one.monitor, one.action, one.since if one.since >= 0 else None,
                   f"{one.cause}: {wording.evidence(one)}", wording.action(one))
            for one in decisions
        )  # fmt: skip

    return advise


def fresh(before: Sequence[Advice], now: Sequence[Advice]) -> list[Advice]:
    """What was not said before; a look at more of a run never takes earlier advice back."""
    said = {(one.step, one.monitor) for one in before}
    return [one for one in now if (one.step, one.monitor) not in said]


def alert(one: Advice, source: str) -> Alert:
    """What the receivers of alerts are told of advice about the run `source`."""
    line = f"step {one.step:,}: {one.cause}. {one.advice}"
    document = {"text": f"{source}: {line}", "run": source, **vars(one)}
    return Alert(source, f"advice: {one.advice}", one.cause, "warning", f"autopilot {one.monitor}", one.step, document)
