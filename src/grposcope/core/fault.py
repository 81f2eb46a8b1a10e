"""What a fault is: a file below `faults/` with a FAULT, whose docstring is its page, and how evidence shows it.

A fault is looked for in the log of a run (`LogTest`), in settings before one (`SettingsCheck`), and in rollouts and
weights (`Proof`). One test may tell several faults apart; each of them then names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from grposcope.core.finding import Finding, Grade
from grposcope.core.run import Run
from grposcope.core.settings import Settings


@dataclass(frozen=True)
class LogTest:
    """How a log shows a fault.

    fault: the fault that it finds where its finding names no other. check: a pure function of `signs.quantities`; a
    quantity that it asks for by `Quantities.require` and that is not logged ends it, and the finding is then "cannot
    tell". needs: quantities (keys of `core.metrics.VARIANTS`) without which it cannot tell. statistic, threshold: in
    words. limit: it tests whether a level is beyond a limit, so that it is clearly inside only where p is near 1.
    where_logged: it looks at what few runs log, so that one that does not log it has no finding of this test.
    early: the same fault as a fact of first rows that are too few for `check`; None where they do not show it.
    """

    fault: str
    check: Callable[[Any], Finding]
    needs: tuple[str, ...]
    statistic: str
    threshold: str
    limit: bool = False
    where_logged: bool = False
    early: Callable[[Any], Finding | None] | None = None


@dataclass(frozen=True)
class SettingsCheck:
    """How settings show a fault before a run.

    fault: as in LogTest. check: of the settings and of what is known beside them (`faults.known_task`), yields what it
    found, or what it would need to know; nothing where the fault is not there. trainers: names of the engines whose
    settings it reads. finds: what it looks for, in words. grades: those that its findings may have. source: where it is
    not those of the fault's page. scripts: trainers of which it reads only what a script has beside its settings.
    """

    fault: str
    check: Callable[[Settings, Any], Iterable[Finding]]
    trainers: tuple[str, ...]
    finds: str
    grades: tuple[Grade, ...]
    source: str = ""
    scripts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proof:
    """How rollouts and weights show faults: a claim of the pipeline that each of them breaks.

    name: a key in lower case with hyphens. claim: what the pipeline says of itself, a sentence. needs: the evidence
    that it takes, in words for a table. check: yields a finding for each way of breaking the claim that could be
    tested, and "cannot tell" with the reason for those that could not. where_there: it is about what few rollouts have,
    such as turns, so that it is no claim of a pipeline of which it finds nothing.
    """

    name: str
    claim: str
    needs: str
    check: Callable[[Any], Iterable[Finding]]
    where_there: bool = False


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong in training with groups.

    name: in words. rank: place in the order in which faults are told, causes before what follows from them. remedy:
    what to do, unless the finding brings its own. effect: what it may cost beside learning that goes well, as a
    clause. beside: its grade beside learning that goes well; instead: where the run stalled, fell, lost what it had
    learned or never learned. minor: it says that nothing happens rather than that something goes wrong. gamed: the
    training reward does not show the outcome where it is there, so that only a held-out score does. log, settings:
    how this kind of evidence shows it, None where it does not. rollouts: the claims of the pipeline that it breaks.
    reading: yields what was found when the log was read, facts that need no test and are no test that found
    nothing. implies: faults that are the same fact where this one is there. outgrown: many a sound run begins with it
    and learns itself out of it, so that what goes on has not failed by it at first.
    """

    name: str
    rank: float
    remedy: str
    effect: str = ""
    beside: Grade = "note"
    instead: Grade = "failing"
    minor: bool = False
    gamed: bool = False
    log: LogTest | None = None
    settings: SettingsCheck | None = None
    rollouts: tuple[Proof, ...] = ()
    reading: Callable[[Run], Iterable[Finding]] | None = None
    implies: tuple[str, ...] = ()
    outgrown: bool = False
