"""Alarms: modes newly flagged in a run in progress, each raised once per onset. Method of this project; no publication.

Looks and their levels are those of `faults.looks`: at scheduled rows a mode is flagged where `diagnose` flags it on the
rows so far; at other rows, where a look is made because rows changed or time allows it, it is raised only if it is
surer than that. What the record proves (p = 0) needs no level and is raised at any look; values that are not finite
are looked at in the first row that has one (`Alarms.urgent`). What follows from a fault that was raised is raised too,
and is told to nobody (`Alarms.follows`), so that a fault is one line.

A mode is raised when it is flagged and was not at the look before, or when its grade is worse than at its last alarm:
a note may become a failure. Otherwise it is raised again only after a look at which it was not flagged, and only with
an onset after the step of its last alarm, since the estimate of an onset wanders.
Minor modes, which say that nothing happens yet, are true of the first steps of any run, so they are raised only on
request.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from grposcope.core.errors import UserError
from grposcope.core.finding import GRADES, Finding, Grade
from grposcope.core.run import Run
from grposcope.faults import catalogue, judge, looks
from grposcope.faults.judge import LEVEL, diagnose
from grposcope.logs.tail import Pace

GROWTH = 1.1
"""Rows at a look over rows at the look before, where time allows it."""

FREE = 150
"""Rows up to which scheduled looks are made whatever that costs: a run that is dead from its first steps is seen within
them, also where steps take a tenth of a second."""

BUDGET = 0.0035
"""Largest share of the time of a training that looks at it may take, but for the first; with what every row costs, its
diagnosis takes at most half a percent."""

FIRST = 0.2
"""Seconds that the first diagnosis is assumed to cost, so that it waits until it fits the budget."""


class Alarms:
    """Looks at a run while it grows.

    raised: alarms so far, also those of an earlier session, in which the run had grown to `rows` rows.
    minor: minor modes that are raised nevertheless. findings, rows: those of the last look.
    """

    def __init__(
        self, raised: Iterable[Finding] = (), rows: int = 0, minor: Collection[str] = (), level: float = LEVEL
    ):
        self.raised = list(raised)
        self.level = level
        self._silent = catalogue.minor() - set(minor)
        self.findings: tuple[Finding, ...] = ()
        self._active = {alarm.fault for alarm in self.raised}
        self._judged = rows
        self.rows, self._last = 0, 0
        self._odd: set[str] = set()

    def due(self, rows: int, pace: Pace | None = None, changed: bool = False) -> bool:
        """Whether a run of `rows` rows has grown enough for another look, or is another run.

        pace: keeps looks to a budget. changed: a metric changed, which is looked at at once among the first rows.
        """
        if pace is not None and not pace.ready():
            return changed and rows < FREE
        if changed:
            return True
        grown = rows >= max(self.rows + 1, math.ceil(GROWTH * self.rows)) or looks.passes(self.rows, rows)
        return grown or 0 < rows < self.rows

    def free(self, rows: int) -> bool:
        """Whether one of the first looks is due, which need not keep to the budget."""
        return self.rows < FREE and looks.passes(self.rows, min(rows, FREE))

    def urgent(self, run: Run) -> bool:
        """Whether a metric of the run is not finite that was finite at the last look: to be looked at at once."""
        return not run.nonfinite.keys() <= self._odd

    def look(self, run: Run, of_texts: Sequence[Finding] = (), last: bool = False) -> list[Finding]:
        """Diagnose the run; returns the new alarms. of_texts: exploits that its texts show, which have a level of
        their own (`text_looks`). last: the run is over, whatever its record says yet."""
        if not run.steps:
            return []
        run = looks.first_rows(run, run.steps, "finished") if last and run.meta.status == "running" else run
        step = int(run.table["step"][-1])
        if step < self._last:
            self._forget(step)
        self.rows, self._last, self._odd = run.steps, step, set(run.nonfinite)
        sure = looks.level_of_look(self._judged, run.steps, self.level)
        self._judged = run.steps
        of_log = diagnose(run, self.level)
        self.findings = judge.in_order([*of_log, *of_texts]) if of_texts else of_log
        present = [f for f in self.findings if f.present and f.fault not in self._silent]
        flagged = [f for f in present if f in of_texts or f.basis == "fact" or not f.adjusted >= sure]
        new = [
            replace(finding, seen=step)
            for finding in flagged
            if finding.grade is not None and self._is_new(finding, finding.grade)
        ]
        still = self._active & {finding.fault for finding in present}
        self._active = still | {finding.fault for finding in flagged}
        self.raised += new
        return new

    def follows(self, alarm: Finding) -> bool:
        """Whether an alarm is explained by one that was raised no later and is still flagged: it is no news then."""
        return any(
            cause.fault != alarm.fault and cause.fault in self._active and judge.explains(cause, alarm)
            for cause in self.raised
        )

    def _is_new(self, finding: Finding, grade: Grade) -> bool:
        before = [alarm for alarm in self.raised if alarm.fault == finding.fault]
        last = before[-1].grade if before else None
        if last is not None and at_least(grade, last) and grade != last:
            return True
        if finding.fault in self._active:
            return False
        return not before or (finding.onset is not None and finding.onset > (before[-1].seen or 0))

    def _forget(self, step: int) -> None:
        """Drop alarms after `step`: the run went back to it, or is another one, and they may be raised anew."""
        self.raised = [alarm for alarm in self.raised if (alarm.seen or 0) <= step]
        self._active &= {alarm.fault for alarm in self.raised}
        self._judged = 0


@dataclass(frozen=True)
class Wanted:
    """What somebody wants to hear of: these modes whatever their grade, and any mode of `grade` or worse, if given.

    A grade does not stand for the minor modes.
    """

    modes: frozenset[str] = frozenset()
    grade: Grade | None = None

    def __bool__(self) -> bool:
        return bool(self.modes) or self.grade is not None

    def covers(self, fault: str, grade: Grade | None) -> bool:
        """Whether a fault that is present with this grade is wanted."""
        if fault in self.modes:
            return True
        if self.grade is None or grade is None:
            return False
        return at_least(grade, self.grade) and fault not in catalogue.minor()


def at_least(grade: Grade, limit: Grade) -> bool:
    """Whether a grade is as bad as `limit` or worse."""
    return GRADES.index(grade) <= GRADES.index(limit)


def wanted(names: Iterable[str], modes: Sequence[str] | None = None) -> Wanted:
    """Modes and grades by name, of which the mildest grade counts; UserError for a name that is neither.

    modes: those that may be raised, by default the ones that a log and the texts of a run show.
    """
    chosen = set(names)
    names_of_faults = catalogue.seen_in_runs() if modes is None else modes
    unknown = sorted(chosen - {*names_of_faults, *GRADES})
    if unknown:
        choices = f"{', '.join(GRADES)}, or one of: {', '.join(names_of_faults)}"
        raise UserError(f"{unknown[0]!r} is neither a grade nor a fault; give {choices}")
    mildest = [grade for grade in GRADES if grade in chosen][-1:]
    return Wanted(frozenset(chosen - {*GRADES}), mildest[0] if mildest else None)
