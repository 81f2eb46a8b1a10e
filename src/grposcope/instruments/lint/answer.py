"""What is said of the settings of a run that has not begun."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grposcope.core.answer import Answer, Table, Word
from grposcope.core.finding import Finding, document
from grposcope.core.settings import Settings
from grposcope.faults.judge_settings import judged, untold, word

QUESTION = "What will go wrong with these settings?"

CONCLUSIONS: dict[Word, str] = {
    "failing": "failing: with these settings the run stops or learns nothing",
    "warning": "warning: with these settings the run wastes part of its compute, or may fail",
    "healthy": "healthy: no known problem in these settings",
    "cannot tell": "cannot tell: no problem in the settings that can be read",
}


def answer(settings: Settings, findings: Sequence[Finding]) -> Answer:
    """The verdict with the worst finding, what could not be checked, and a table of each fault that is present."""
    grade = word(findings, settings)
    worst = findings[0] if findings and findings[0].present and grade != "healthy" else None
    defaults = settings.dialect.version and not settings.partial
    version = f", defaults of {settings.dialect.version.removeprefix('of ')}" if defaults else ""
    return Answer(
        "lint",
        QUESTION,
        grade,
        verdict(settings, findings),
        because=worst.because if worst else "",
        do=worst.remedy if worst else "",
        text=[
            f"Read: {settings.source}, {settings.form}, {settings.dialect.title}{version}.",
            *settings.notes,
            *_excluded(findings),
        ],
        tables=[_of_finding(finding) for finding in findings if finding.present],
        missing=_untold(findings),
        document={
            "verdict": verdict(settings, findings),
            "grade": grade,
            "source": str(settings.source),
            "form": settings.form,
            "trainer": settings.dialect.name,
            "defaults_of": settings.dialect.version,
            "findings": [document(finding) for finding in findings],
            "opaque": sorted(settings.opaque),
            "notes": settings.notes,
        },
    )


def verdict(settings: Settings, findings: Sequence[Finding]) -> str:
    """The conclusion in one sentence, with how much was found."""
    grades = [finding.grade for finding in findings if finding.present]
    counts = {grade: grades.count(grade) for grade in dict.fromkeys(grades)}
    told = ", ".join(f"{n} {grade}{'s' * (grade != 'failing' and n != 1)}" for grade, n in counts.items())
    checked = f"{judged(findings)} of {judged(findings) + untold(findings)} checks could judge"
    return f"{CONCLUSIONS[word(findings, settings)]} ({told or 'no findings'}; {checked})"


def _excluded(findings: Sequence[Finding]) -> list[str]:
    """The faults that are not there, in a sentence, and what was seen of them where that is worth one."""
    excluded = [finding for finding in findings if finding.status == "excluded"]
    names = ", ".join(dict.fromkeys(finding.fault for finding in excluded))
    seen = [f"Not {finding.fault}: {finding.because}." for finding in excluded if finding.because]
    return [f"Checks that found nothing: {names}.", *seen] if names else []


def _untold(findings: Sequence[Finding]) -> list[str]:
    """What could not be checked, by reason."""
    by_reason: dict[str, list[str]] = {}
    for finding in findings:
        if finding.status == "cannot tell":
            by_reason.setdefault(finding.because, []).append(finding.fault)
    return [f"Not checked: {_listed(faults)}: {reason}." for reason, faults in by_reason.items()]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _of_finding(finding: Finding) -> Table:
    seen = [f"{sign.what}{', ' * bool(sign.where)}{sign.where}" for sign in finding.evidence]
    places = [("" if number else "set", index) for number, index in enumerate(seen)]
    rows = [("why", finding.because), *places, ("change", finding.remedy), ("source", finding.source)]
    return Table("", (finding.grade or "", f"{finding.brief} ({finding.fault})"), rows)
