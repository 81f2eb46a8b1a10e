"""All rules on one run, weighed together: findings in the order of what to look at first.

Many rules look at one run, so each p-value is adjusted by Holm's method over the rules that could test something: the
chance that a run without any failure has any finding flagged is at most `level`, whatever the dependence between the
rules. At the strictest, a rule is flagged at p < level / (number of rules). Rules that prove rather than test (their p
is 0 or 1) cannot raise a false alarm and are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from grposcope.diagnosis.findings import Finding, Rule, RuleResult, Status, cannot_tell
from grposcope.diagnosis.quantities import NotLoggedError, Quantities
from grposcope.diagnosis.rules import RULES
from grposcope.runs.run import Run

LEVEL = 0.05
"""Chance of any flag on a run without failures."""


def diagnose(run: Run, level: float = LEVEL) -> tuple[Finding, ...]:
    """Findings of all rules on a run: the flagged ones first, then those that cannot be told, then those that are ok.

    level: chance of any flag on a run without failures.
    """
    quantities = Quantities(run)
    rules = list(dict.fromkeys(RULES.values()))
    results = [_result(rule, quantities) for rule in rules]
    tests = [math.nan if rule.proof else result.p for rule, result in zip(rules, results, strict=True)]
    adjusted = [r.p if rule.proof else p for rule, r, p in zip(rules, results, holm(tests), strict=True)]
    findings = [_finding(*weighed, level) for weighed in zip(rules, results, adjusted, strict=True)]
    order = list(RULES)
    return tuple(sorted(findings, key=lambda finding: _place(finding, findings, order)))


def _result(rule: Rule, quantities: Quantities) -> RuleResult:
    """The result of a rule; "cannot tell" where a quantity that it requires is not logged."""
    try:
        return rule.check(quantities)
    except NotLoggedError as reason:
        return cannot_tell(str(reason), reason.quantity)


def holm(p: Sequence[float]) -> list[float]:
    """P-values adjusted by Holm's method (Holm 1979), in the order given; NaN is not counted and stays."""
    adjusted, least = [math.nan] * len(p), 0.0
    tested = sorted((i for i in range(len(p)) if not math.isnan(p[i])), key=lambda i: p[i])
    for rank, index in enumerate(tested):
        least = max(least, min(1.0, (len(tested) - rank) * p[index]))
        adjusted[index] = least
    return adjusted


def _place(finding: Finding, findings: Sequence[Finding], order: Sequence[str]) -> tuple[int, float]:
    """Sort key: status, then the order of modes; a finding that explains others stands before the first of them."""
    status = ("flagged", "cannot tell", "ok").index(finding.status)
    explained = [order.index(f.mode) - 0.5 for f in findings if f.status == "flagged" and _explains(finding, f)]
    return status, min([float(order.index(finding.mode)), *explained])


def _explains(cause: Finding, effect: Finding) -> bool:
    later = cause.onset is not None and effect.onset is not None and cause.onset <= effect.onset
    return cause.status == "flagged" and effect.mode in cause.explains and later


def _finding(rule: Rule, result: RuleResult, adjusted: float, level: float) -> Finding:
    flagged = adjusted < level
    untold = math.isnan(adjusted) or bool(result.missing)
    status: Status = "flagged" if flagged else "cannot tell" if untold else "ok"
    return Finding(
        mode=result.mode if result.mode and flagged else rule.mode,
        status=status,
        because=result.because,
        evidence=result.evidence,
        advice=(result.advice or rule.advice) if flagged else "",
        source=rule.source,
        p=result.p,
        adjusted=adjusted,
        confidence=1 - adjusted if flagged else math.nan,
        onset=result.onset if flagged else None,
        missing=() if flagged else result.missing,
        explains=result.explains if flagged else (),
    )
