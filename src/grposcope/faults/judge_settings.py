"""All checks of settings, asked of a run that has not begun, and what its findings say together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from grposcope.core.answer import Word
from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults import catalogue, pages
from grposcope.faults.judge import in_order
from grposcope.faults.known_task import Known

UNREAD = "none of the settings concerned could be read"
"""Why a fault cannot be told where settings may be given elsewhere."""


def lint(settings: Settings, known: Known | None = None) -> tuple[Finding, ...]:
    """Findings of all checks on settings: faults that are present, the worst grade first; those that cannot be told;
    and those that are excluded. known: what is known of the task and the machine beside the settings."""
    faults, beside = catalogue.faults(), known or Known()
    return in_order([
        _told(finding, check, faults)
        for check in catalogue.settings_checks()
        if settings.dialect.name in check.trainers
        for finding in _findings(check, settings, beside)
    ])  # fmt: skip


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
