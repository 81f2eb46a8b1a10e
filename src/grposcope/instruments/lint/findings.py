"""What a check is, what it says of one configuration, and the finding that goes to the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from grposcope.core.answer import Word
from grposcope.core.finding import Grade
from grposcope.instruments.lint.config import Known, TrainerConfig


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
    """All findings, the worst first, what could not be checked, and the checks that found nothing.

    partial: more settings may be given than could be read.
    """

    findings: tuple[LintFinding, ...]
    unchecked: tuple[Unchecked, ...]
    passed: tuple[str, ...]
    partial: bool = False

    @property
    def grade(self) -> Word:
        """The worst grade; where nothing worse than a note was found "healthy" if all settings could be read and most
        checks could judge, else "cannot tell"."""
        worst = self.findings[0].grade if self.findings else "note"
        if worst != "note":
            return worst
        return "healthy" if not self.partial and self.judged > len(self.unchecked) else "cannot tell"

    @property
    def judged(self) -> int:
        """How many checks could judge."""
        return len(self.passed) + len({finding.check for finding in self.findings} - set(self.passed))


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
