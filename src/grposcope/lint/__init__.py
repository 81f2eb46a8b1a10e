"""Pre-flight: what will go wrong with the settings of a run, before it costs anything.

`read.read` finds the settings in a file, `lint` asks every check of `checks.CHECKS`. Needs no torch, runs no code of
the user, and opens no pickle.
"""

from __future__ import annotations

from grposcope.diagnosis.findings import GRADES
from grposcope.lint.checks import CHECKS
from grposcope.lint.config import Known, TrainerConfig
from grposcope.lint.findings import Fault, LintFinding, LintResult, Unchecked, places


def lint(config: TrainerConfig, known: Known | None = None) -> LintResult:
    """All findings on a configuration, the worst first; `known`: what is known beside it."""
    findings: list[LintFinding] = []
    unchecked: list[Unchecked] = []
    passed: list[str] = []
    for check in CHECKS:
        if config.dialect.name not in check.trainers:
            continue
        answers = list(check.function(config, known or Known()))
        for answer in answers:
            if isinstance(answer, Fault):
                said = (answer.grade, answer.what, answer.why, answer.change)
                findings.append(LintFinding(check.name, *said, check.source, places(config, answer.keys)))
            else:
                unchecked.append(Unchecked(check.name, answer.reason))
        if not answers:
            passed.append(check.name)
    findings.sort(key=lambda finding: GRADES.index(finding.grade))
    return LintResult(tuple(findings), tuple(unchecked), tuple(passed))
