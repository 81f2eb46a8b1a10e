"""What is said of the settings of a run that has not begun."""

from __future__ import annotations

from dataclasses import asdict

from grposcope.core.answer import Answer, Table, Word
from grposcope.instruments.lint.config import TrainerConfig
from grposcope.instruments.lint.findings import LintFinding, LintResult

QUESTION = "What will go wrong with these settings?"

CONCLUSIONS: dict[Word, str] = {
    "failing": "failing: with these settings the run stops or learns nothing",
    "warning": "warning: with these settings the run wastes part of its compute, or may fail",
    "healthy": "healthy: no known problem in these settings",
    "cannot tell": "cannot tell: no problem in the settings that can be read",
}


def answer(config: TrainerConfig, result: LintResult) -> Answer:
    """The verdict with the worst finding, what could not be checked, and a table of each finding."""
    worst = result.findings[0] if result.findings and result.grade != "healthy" else None
    defaults = config.dialect.version and not config.partial
    version = f", defaults of {config.dialect.version}" if defaults else ""
    text = [f"Read: {config.source}, {config.form}, {config.dialect.title}{version}.", *config.notes]
    if result.passed:
        text.append(f"Checks that found nothing: {', '.join(result.passed)}.")
    return Answer(
        "lint",
        QUESTION,
        result.grade,
        verdict(result),
        because=worst.why if worst else "",
        do=worst.change if worst else "",
        text=text,
        tables=[_of_finding(finding) for finding in result.findings],
        missing=_unchecked(result),
        document={
            "verdict": verdict(result),
            "grade": result.grade,
            "source": str(config.source),
            "form": config.form,
            "trainer": config.dialect.name,
            "defaults_of": config.dialect.version,
            "findings": [asdict(finding) for finding in result.findings],
            "unchecked": [asdict(one) for one in result.unchecked],
            "passed": result.passed,
            "opaque": sorted(config.opaque),
            "notes": config.notes,
        },
    )


def _unchecked(result: LintResult) -> list[str]:
    """What could not be checked, by reason."""
    by_reason: dict[str, list[str]] = {}
    for one in result.unchecked:
        by_reason.setdefault(one.reason, []).append(one.check)
    return [f"Not checked: {', '.join(checks)}: {reason}." for reason, checks in by_reason.items()]


def verdict(result: LintResult) -> str:
    """The conclusion in one sentence, with how much was found."""
    grades = [finding.grade for finding in result.findings]
    counts = {grade: grades.count(grade) for grade in dict.fromkeys(grades)}
    told = ", ".join(f"{n} {grade}{'s' * (grade != 'failing' and n != 1)}" for grade, n in counts.items())
    judged = f"{result.judged} of {result.judged + len(result.unchecked)} checks could judge"
    return f"{CONCLUSIONS[result.grade]} ({told or 'no findings'}; {judged})"


def _of_finding(finding: LintFinding) -> Table:
    places = [("" if number else "set", place) for number, place in enumerate(finding.places)]
    rows = [("why", finding.why), *places, ("change", finding.change), ("source", finding.source)]
    return Table("", (finding.grade, f"{finding.what} ({finding.check})"), rows)
