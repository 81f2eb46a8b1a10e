"""All checks asked of one configuration, and what an earlier run tells them."""

from __future__ import annotations

import math

from grposcope.core.errors import UserError
from grposcope.core.run import Run
from grposcope.instruments.diagnosis.findings import GRADES
from grposcope.instruments.lint.checks import CHECKS
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, LintFinding, LintResult, Unchecked, places
from grposcope.instruments.stability.stability import UpdateRule, from_reward


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
    return LintResult(tuple(findings), tuple(unchecked), tuple(passed), config.partial)


def update_rule(run: Run) -> tuple[UpdateRule | None, str]:
    """The update rule of an earlier run with its curvature, and where that comes from or why there is none."""
    try:
        rule = from_reward(run)
    except UserError as error:
        return None, str(error)
    if not math.isfinite(rule.curvature.value):
        return rule, f"its curvature is unknown: {rule.missing}"
    return rule, f"from the time constant of the reward of {run.meta.name}, which stiffer directions may undercut"
