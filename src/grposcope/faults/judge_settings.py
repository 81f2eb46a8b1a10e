"""All checks of settings, asked of a run that has not begun, and what its findings say together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from grposcope.core.answer import Word
from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import GRADES, Finding, Sign, cannot_tell, fact
from grposcope.core.run import Run, once
from grposcope.core.settings import Settings
from grposcope.core.text import listed
from grposcope.faults import catalogue, pages
from grposcope.faults.judge import explains, in_order
from grposcope.faults.known_task import Known
from grposcope.signs import checkpoints, run_outcome
from grposcope.signs.settings.in_force import FAR, NEAR, compared
from grposcope.signs.settings.names import key_of

REFUSED = ("refused settings", "indivisible batches", "indivisible gpus", "missing reference")
"""Faults of settings with which no run begins, so that one that began has not those settings."""

UNREAD = "none of the settings concerned could be read"
"""Why a fault cannot be told where settings may be given elsewhere."""


def lint(settings: Settings, known: Known | None = None) -> tuple[Finding, ...]:
    """Findings of all checks on settings: faults that are present, the worst grade first; those that cannot be told;
    and those that are excluded. known: what is known of the task and the machine beside the settings."""
    return in_order([replace(finding, explains=()) for finding in _all(settings, known or Known())])


def _all(settings: Settings, known: Known) -> list[Finding]:
    """The findings of all checks, with what each would explain in a log."""
    faults = catalogue.faults()
    return [
        _told(finding, check, faults)
        for check in catalogue.settings_checks()
        if settings.dialect.name in (check.trainers if settings.script is None else (*check.trainers, *check.scripts))
        for finding in _findings(check, settings, known)
    ]


def word(findings: Sequence[Finding], settings: Settings) -> Word:
    """The worst grade; where nothing worse than a note is present "healthy" if all settings could be read and most
    faults could be judged, else "cannot tell"."""
    worst = findings[0].grade if findings and findings[0].present else None
    if worst is not None and worst != "note":
        return worst
    return "healthy" if not settings.partial and judged(findings) > untold(findings) else "cannot tell"


def judged(findings: Sequence[Finding]) -> int:
    """How many faults could be judged: they are present, or excluded."""
    return len({finding.fault for finding in findings if finding.status in ("present", "excluded")})


def untold(findings: Sequence[Finding]) -> int:
    """How many times something could not be told."""
    return sum(finding.status == "cannot tell" for finding in findings)


def with_settings(run: Run, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of a run with those of its settings that explain one that is present, which they come before.

    A fault that log and settings both show is one finding, with the values of the settings and their remedy. A run
    without settings, or with those of another trainer, keeps its findings.
    """
    problems = {problem.fault: problem for problem in reversed(_problems(run))}
    told = [_with_values(run, finding, problems.get(finding.fault)) for finding in findings]
    for finding in findings:
        if finding.present:
            problems.pop(finding.fault, None)
    causes = [cause for problem in problems.values() if (cause := _as_cause(run, problem, findings)) is not None]
    named = {cause.fault for cause in causes}
    return in_order([*causes, *(finding for finding in told if finding.fault not in named)])


def alone(run: Run, findings: Sequence[Finding]) -> str:
    """What is failing or a warning in the settings of a run and explains nothing that is present, as a clause; empty
    where there is nothing. findings: as `with_settings` returns them."""
    present = {finding.fault for finding in findings if finding.present}
    rest = [problem for problem in _problems(run) if problem.fault not in present and problem.grade != "note"]
    if not rest or run.asked is None:
        return ""
    said = f"{rest[0].brief} ({listed([sign.what for sign in rest[0].evidence[:2]])})" if rest[0].evidence else ""
    more = f", and {len(rest) - 1} more" if len(rest) > 1 else ""
    where = "" if run.asked.recorded else f"; `grposcope lint {run.asked.settings.source}`"
    return f"in the settings, without a sign of it in the log: {said or rest[0].brief}{more}{where}"


@once
def _problems(run: Run) -> tuple[Finding, ...]:
    """What is failing or a warning in the settings of a run, or may explain what a log shows, without settings that it
    does not have, the worst first; nothing where they are of another trainer or, as most differ, of another run."""
    if run.asked is None or run.asked.settings.dialect.name != run.meta.engine:
        return ()
    both = () if run.asked.recorded else compared(run.asked, run)
    differing = [setting.key for setting in both if setting.differs]
    if 2 * len(differing) > len(both) > 3:
        return ()
    problems = [
        problem
        for problem in _all(_at_its_rate(run, run.asked.settings), Known())
        if problem.present
        and problem.fault not in REFUSED
        and (problem.grade != "note" or problem.explains)
        and not any(sign.what.startswith(f"{key} = ") for sign in problem.evidence for key in differing)
    ]
    return tuple(sorted(problems, key=lambda problem: GRADES.index(problem.grade or "note")))


def _at_its_rate(run: Run, settings: Settings) -> Settings:
    """The settings with the highest learning rate of the rows, where these have one and it is far below that which was
    asked for, or above it: then it is what may explain a sign."""
    rates, key = run.table.get("lr"), key_of(settings, "lr")
    if rates is None or not np.isfinite(rates).any() or not settings.says(key):
        return settings
    peak, asked = float(np.nanmax(rates)), settings.number(key)
    if asked is not None and FAR * asked <= peak <= asked * (1 + NEAR):
        return settings
    return replace(settings, given={**settings.given, key: float(f"{peak:.3g}")})


def _place(run: Run, signs: Sequence[Sign]) -> str:
    """Where the values of these signs stand: in the settings, unless one is the rate of the rows instead of theirs."""
    settings = None if run.asked is None else run.asked.settings
    if settings is None or _at_its_rate(run, settings) is settings:
        return "in the settings"
    of_rate = [sign.what.startswith(f"{key_of(settings, 'lr')} = ") for sign in signs]
    return "in the rows" if all(of_rate) else "in the rows and the settings" if any(of_rate) else "in the settings"


def _with_values(run: Run, finding: Finding, problem: Finding | None) -> Finding:
    """A finding of a log that the settings show as well, with their values and remedy."""
    if problem is None or not finding.present or not problem.evidence:
        return finding
    values = listed([sign.what for sign in problem.evidence])
    return replace(
        finding, because=f"{finding.because}; {values} {_place(run, problem.evidence)}", remedy=problem.remedy
    )


def _as_cause(run: Run, problem: Finding, findings: Sequence[Finding]) -> Finding | None:
    """A problem of the settings as the cause of what is present in the log; None where it explains nothing there.

    It is as bad as the worst that it explains, and sends back to the checkpoint from before that.
    """
    behind = [finding for finding in findings if finding.present and explains(problem, finding)]
    if not behind or not problem.evidence:
        return None
    worst = min((finding.grade for finding in behind if finding.grade), key=GRADES.index, default=problem.grade)
    since = behind[0].since
    signs = [f"{finding.fault}{f' {finding.since}' if finding.since else ''}" for finding in behind]
    shown = problem.evidence[:3]
    values = f"{listed([sign.what for sign in shown])} {_place(run, shown)}"
    because = f"{values}: {problem.because}; what may follow is in the log: {listed(signs)}"
    back = checkpoints.back(run, run_outcome.of_run(run), since, gamed=False)
    return replace(
        problem,
        grade=worst,
        because=because,
        brief=f"{problem.evidence[0].what}: {problem.brief}",
        remedy=checkpoints.advised(problem.remedy, back, since),
        decides=pages.page(catalogue.fault(problem.fault)).decides,
    )


def _findings(check: SettingsCheck, settings: Settings, facts: Known) -> Iterator[Finding]:
    """What a check found; that the fault is excluded where it found nothing, if it could read any setting."""
    watched = _Watched.of(settings)
    findings = list(check.check(watched, facts))
    if findings:
        yield from findings
    else:
        yield cannot_tell(UNREAD, *watched.asked) if watched.unread else fact(False, "")


def _told(finding: Finding, check: SettingsCheck, faults: Mapping[str, Fault]) -> Finding:
    """A finding with the name of its fault, its source, and what the fault says of itself where it is present."""
    fault = faults[finding.fault or check.fault]
    named = replace(finding, fault=fault.name, source=finding.source or check.source or pages.page(fault).source)
    if not finding.present:
        return named
    return replace(named, effect=finding.effect or fault.effect, remedy=finding.remedy or fault.remedy)


@dataclass(frozen=True)
class _Watched(Settings):
    """Settings that note what is asked of them.

    asked: key -> whether its value is known.
    """

    asked: dict[str, bool] = field(default_factory=dict)

    @staticmethod
    def of(settings: Settings) -> _Watched:
        """The same settings, of which nothing was asked yet."""
        return _Watched(**{each.name: getattr(settings, each.name) for each in fields(settings)})

    def get(self, key: str) -> Any:
        """The value of a key, noted."""
        value = super().get(key)
        self.asked[key] = value is not None
        return value

    @property
    def unread(self) -> bool:
        """Whether something was asked, and nothing of it can be read, of settings that may be given elsewhere."""
        return self.partial and bool(self.asked) and not any(self.asked.values())
