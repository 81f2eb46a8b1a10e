"""All rules on one run, weighed together: findings in the order of what to look at first.

Many rules look at one run, so each p-value is adjusted by Holm's method over the rules that could test something:
the chance that a run without any failure has any finding flagged is at most `level`, whatever the dependence
between rules. A rule alone is flagged at p < level / (number of rules) at the strictest. Rules that prove
rather than test (p is 0 or 1) cannot raise a false alarm and are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from grposcope.diagnosis.findings import Finding, Rule, Status, Verdict
from grposcope.diagnosis.quantities import View
from grposcope.diagnosis.rules import dead_groups, no_learning, optimizer, policy, reward_hacking
from grposcope.runs.run import Run

RULES: tuple[Rule, ...] = (
    *optimizer.RULES,
    *dead_groups.RULES,
    *reward_hacking.RULES,
    *no_learning.RULES,
    *policy.RULES,
)
"""Every rule."""

ORDER = (
    "misconfiguration", "non-finite", "growing oscillation", "reward hacking", "kl blow-up", "saturated",
    "entropy collapse", "entropy explosion", "starved", "oscillation", "length", "cancelling components",
    "gradient explosion", "gradient spikes", "clip saturation", "reward decline", "zero loss", "no learning",
)  # fmt: skip
"""Modes, causes before what follows: the first that is flagged is the headline, unless another explains it."""

LEVEL = 0.05
"""Chance of any flag on a run without failures."""


def diagnose(run: Run, level: float = LEVEL) -> tuple[Finding, ...]:
    """The findings of all rules on a run: flagged ones first, then what cannot be told, then what is ok."""
    view = View(run)
    verdicts = [rule.check(view) for rule in RULES]
    tests = [math.nan if rule.proof else verdict.p for rule, verdict in zip(RULES, verdicts, strict=True)]
    adjusted = [v.p if rule.proof else p for rule, v, p in zip(RULES, verdicts, holm(tests), strict=True)]
    findings = [_finding(*both, level) for both in zip(RULES, verdicts, adjusted, strict=True)]
    return tuple(sorted(findings, key=lambda f: _place(f, findings)))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values (Holm 1979), in the order given; NaN is not counted and stays."""
    adjusted, least = [math.nan] * len(p), 0.0
    tested = sorted((i for i in range(len(p)) if not math.isnan(p[i])), key=lambda i: p[i])
    for rank, index in enumerate(tested):
        least = max(least, min(1.0, (len(tested) - rank) * p[index]))
        adjusted[index] = least
    return adjusted


def _place(finding: Finding, among: Sequence[Finding]) -> tuple[int, float]:
    """Flagged, untold, ok; within each by ORDER, but what explains others stands before the first of them."""
    status = ("flagged", "cannot tell", "ok").index(finding.status)
    follow = [ORDER.index(f.mode) - 0.5 for f in among if f.status == "flagged" and _explains(finding, f)]
    return status, min([float(ORDER.index(finding.mode)), *follow])


def _explains(cause: Finding, effect: Finding) -> bool:
    later = cause.onset is not None and effect.onset is not None and cause.onset <= effect.onset
    return cause.status == "flagged" and effect.mode in cause.explains and later


def _finding(rule: Rule, verdict: Verdict, adjusted: float, level: float) -> Finding:
    flagged = adjusted < level
    untold = math.isnan(adjusted) or bool(verdict.missing)
    status: Status = "flagged" if flagged else "cannot tell" if untold else "ok"
    return Finding(
        mode=verdict.mode if verdict.mode and flagged else rule.mode,
        status=status,
        because=verdict.because,
        evidence=verdict.evidence,
        advice=(verdict.advice or rule.advice) if flagged else "",
        source=rule.source,
        p=verdict.p,
        adjusted=adjusted,
        confidence=1 - adjusted if flagged else math.nan,
        onset=verdict.onset if flagged else None,
        missing=() if flagged else verdict.missing,
        explains=verdict.explains if flagged else (),
    )
