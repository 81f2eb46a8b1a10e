"""What a check is, what it says of one configuration, and the finding that goes to the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from grposcope.diagnosis.findings import Grade
from grposcope.lint.config import Known, TrainerConfig


@dataclass(frozen=True)
class Fault:
    """What will go wrong: what, why with its number, and what to change. keys: the trainer's keys it follows from."""

    grade: Grade
    what: str
    why: str
    change: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Untold:
    """Why a check cannot tell, and what it would need: one clause."""

    reason: str


CheckFunction = Callable[[TrainerConfig, Known], Iterator[Fault | Untold]]


@dataclass(frozen=True)
class Check:
    """One thing that can go wrong.

    name: short, in words. trainers: names of the dialects that it reads. finds: what it looks for, in words. grades:
    those that its problems may have. source: paper, documentation or thread, with its address. function: yields
    problems, or what it would need to know.
    """

    name: str
    trainers: tuple[str, ...]
    finds: str
    grades: tuple[Grade, ...]
    source: str
    function: CheckFunction


@dataclass(frozen=True)
class LintFinding:
    """A problem with the check that found it, its source, and the places in the file of the settings it follows
    from.
    """

    check: str
    grade: Grade
    what: str
    why: str
    change: str
    source: str
    places: tuple[str, ...]


@dataclass(frozen=True)
class Unchecked:
    """A check that could not tell, and why."""

    check: str
    reason: str


@dataclass(frozen=True)
class LintResult:
    """All findings, the worst first, what could not be checked, and the checks that found nothing."""

    findings: tuple[LintFinding, ...]
    unchecked: tuple[Unchecked, ...]
    passed: tuple[str, ...]

    @property
    def grade(self) -> str:
        """The worst grade; "healthy" where nothing worse than a note was found."""
        worst = self.findings[0].grade if self.findings else "note"
        return "healthy" if worst == "note" else worst


def places(config: TrainerConfig, keys: Iterable[str]) -> tuple[str, ...]:
    """Each setting as it stands: "num_generations = 8, line 12", or "… = 8 by default"."""
    told = []
    for key in keys:
        line = f", line {config.lines[key]}" if key in config.lines else ""
        if key in config.opaque:
            told.append(f"{key} = an expression{line}")
        elif config.given.get(key) is not None:
            told.append(f"{key} = {config.given[key]}{line}")
        elif config.get(key) is not None:
            told.append(f"{key} = {config.get(key)} by default")
    return tuple(told)
