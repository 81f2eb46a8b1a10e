"""All checks asked of one configuration, and what an earlier run tells them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.finding import GRADES
from grposcope.core.run import Run
from grposcope.instruments.lint.checks import CHECKS
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, LintFinding, LintResult, Unchecked, places
from grposcope.instruments.lint.read import read
from grposcope.instruments.stability.stability import UpdateRule, from_reward


@dataclass(frozen=True)
class _Watched(TrainerConfig):
    """Settings that note what is asked of them.

    asked: key -> whether its value is known.
    """

    asked: dict[str, bool] = field(default_factory=dict)

    @staticmethod
    def of(config: TrainerConfig) -> _Watched:
        """The same settings, of which nothing was asked yet."""
        return _Watched(**{one.name: getattr(config, one.name) for one in fields(config)})

    def get(self, key: str) -> Any:
        """The value of a key, noted."""
        value = super().get(key)
        self.asked[key] = value is not None
        return value

    @property
    def unread(self) -> bool:
        """Whether something was asked, and nothing of it can be read, of settings that may be given elsewhere."""
        return self.partial and bool(self.asked) and not any(self.asked.values())


def lint(config: str | Path | TrainerConfig, known: Known | None = None) -> LintResult:
    """All findings on a configuration or the file with it, the worst first; `known`: what is known beside it.

    UserError where a file has no settings.
    """
    if not isinstance(config, TrainerConfig):
        config = read(Path(config))
    findings: list[LintFinding] = []
    unchecked: list[Unchecked] = []
    passed: list[str] = []
    for check in CHECKS:
        if config.dialect.name not in check.trainers:
            continue
        watched = _Watched.of(config)
        answers = list(check.function(watched, known or Known()))
        for answer in answers:
            if isinstance(answer, Fault):
                said = (answer.grade, answer.what, answer.why, answer.change)
                findings.append(LintFinding(check.name, *said, check.source, places(config, answer.keys)))
            else:
                unchecked.append(Unchecked(check.name, answer.reason))
        if not answers and watched.unread:
            unchecked.append(Unchecked(check.name, "none of the settings concerned could be read"))
        elif not answers:
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
