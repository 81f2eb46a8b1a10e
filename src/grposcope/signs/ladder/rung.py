"""A rung of the ladder: a question about a flat run, its answer, and what says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.logs.trainers import TRAINERS, how_to_log

Answered = Literal["yes", "no", "cannot tell"]
"""Whether a rung holds."""


@dataclass(frozen=True)
class Rung:
    """One rung.

    name: a noun or two; question: the whole of it. because: what was seen, as a clause with numbers. brief: the same in
    the few words that a first line has room for, of a rung that fails. do: what to do where it fails; where it cannot
    be told, the key to log or the command to run.
    """

    name: str
    question: str
    answer: Answered
    because: str
    brief: str = ""
    do: str = ""

    def document(self) -> dict[str, Any]:
        """The rung as JSON has it."""
        return asdict(self)


def blamed(findings: Sequence[Finding], faults: Sequence[str]) -> Finding | None:
    """The first of these faults that is failing or a warning; None where none is."""
    bad = [finding for finding in findings if finding.present and finding.grade != "note"]
    return next((finding for name in faults for finding in bad if finding.fault == name), None)


def present(findings: Sequence[Finding], fault: str) -> bool:
    """Whether a fault is there, however bad it is."""
    return any(finding.present and finding.fault == fault for finding in findings)


def of_fault(name: str, question: str, finding: Finding) -> Rung:
    """A rung that fails because a fault says so."""
    return Rung(name, question, "no", finding.because, finding.brief or finding.fault, finding.remedy)


def to_log(quantity: str, noun: str, run: Run) -> str:
    """What to log for a rung to be answered, and how the trainer of the run does, where that is known."""
    trainer = TRAINERS.get(run.meta.engine)
    logged = trainer is not None and quantity in trainer.how_to_log
    how = how_to_log(quantity, run.meta.engine, run.config.get("logged")) if logged else ""
    return f"log {noun}" + (f" ({how})" if how else "")
