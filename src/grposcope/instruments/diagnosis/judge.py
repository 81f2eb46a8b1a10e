"""All rules on one run, weighed together: findings in the order of what to look at first.

Many rules look at one run, so each p-value is adjusted by Holm's method over the rules that could test something: the
chance that a run without any failure has any finding flagged is at most `level`, whatever the dependence between the
rules. At the strictest, a rule is flagged at p < level / (number of rules). Rules that prove rather than test (their p
is 0 or 1) cannot raise a false alarm and are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from grposcope.core.run import Run
from grposcope.instruments.diagnosis import run_outcome, words
from grposcope.instruments.diagnosis.findings import GRADES, Finding, Grade, Rule, RuleResult, Status, cannot_tell
from grposcope.instruments.diagnosis.outcome import Outcome
from grposcope.instruments.diagnosis.quantities import NotLoggedError, Quantities
from grposcope.instruments.diagnosis.rules import RULES
from grposcope.maths.holm import holm

LEVEL = 0.05
"""Chance of any flag on a run without failures."""


ALMOST = 0.2
"""Adjusted p-value below which a mode that is not flagged is worth a word: it is almost shown."""

INSIDE = 0.95
"""p-value of a rule of a limit above which the level is clearly inside it; below, it is near the limit."""


def diagnose(run: Run, level: float = LEVEL) -> tuple[Finding, ...]:
    """Findings of all rules on a run: the flagged ones first, the worst grade before the others, then those that cannot
    be told, then those that are ok.

    level: chance of any flag on a run without failures.
    """
    return diagnose_together([run], level)[0]


def diagnose_together(runs: Sequence[Run], level: float = LEVEL) -> list[tuple[Finding, ...]]:
    """The findings of each of several runs as in `diagnose`, held to the chance `level` of any flag on any of them.

    Holm's method goes over the rules of all runs, so the environments of one run may be looked at one by one.
    """
    rules = list(dict.fromkeys(RULES.values()))
    seen = [Quantities(run) for run in runs]
    results = [[_result(rule, quantities) for rule in rules] for quantities in seen]
    pairs = [(rule, result) for of_run in results for rule, result in zip(rules, of_run, strict=True)]
    proved = [rule.proof or result.proof for rule, result in pairs]
    tests = holm([math.nan if proof else result.p for proof, (_, result) in zip(proved, pairs, strict=True)])
    adjusted = [
        result.p if proof else p for proof, (_, result), p in zip(proved, pairs, tests, strict=True)
    ]  # fmt: skip
    return [
        _findings(rules, results[k], adjusted[k * len(rules) : (k + 1) * len(rules)], level, quantities)
        for k, quantities in enumerate(seen)
    ]


def _findings(
    rules: Sequence[Rule],
    results: Sequence[RuleResult],
    adjusted: Sequence[float],
    level: float,
    quantities: Quantities,
) -> tuple[Finding, ...]:
    """The findings of one run, in the order of what to look at first."""
    outcome = run_outcome.of_run(quantities.run)
    findings = [
        _finding(*weighed, level, outcome, quantities) for weighed in zip(rules, results, adjusted, strict=True)
    ]  # fmt: skip
    order = list(RULES)
    return tuple(sorted(findings, key=lambda finding: _place(finding, findings, order)))


def _result(rule: Rule, quantities: Quantities) -> RuleResult:
    """The result of a rule; "cannot tell" where a quantity that it requires is not logged, or on too few rows."""
    try:
        return rule.check(quantities)
    except NotLoggedError as reason:
        return cannot_tell(str(reason), reason.quantity)


def grade(rule: Rule, result: RuleResult, outcome: Outcome) -> Grade:
    """The grade of a flagged finding, from what became of the run: by the table of `words`.

    What no reward shows keeps its grade where only the reward says the outcome. What fails beside learning too fails
    whatever became of the run.
    """
    beside, instead = result.beside or rule.beside, result.instead or rule.instead
    if rule.gamed and not outcome.heldout:
        return instead
    proved = rule.proof or result.proof
    weighed = words.weighed(outcome.state, "fact" if proved or beside == "failing" else "shown")
    if weighed == "beside":
        return beside
    return instead if weighed == "instead" else max(instead, "warning", key=GRADES.index)


def _place(finding: Finding, findings: Sequence[Finding], order: Sequence[str]) -> tuple[int, int, float]:
    """Sort key: status, grade, then the order of modes; what explains others stands before the first of them."""
    status = ("flagged", "near the limit", "cannot tell", "ok").index(finding.status)
    worst = GRADES.index(finding.grade) if finding.grade is not None else 0
    explained = [order.index(f.mode) - 0.5 for f in findings if f.status == "flagged" and explains(finding, f)]
    return status, worst, min([float(order.index(finding.mode)), *explained])


def explains(cause: Finding, effect: Finding) -> bool:
    """Whether a flagged finding is the cause of another: its rule says so, and it begins no later, or with the run."""
    later = cause.onset is None or (effect.onset is not None and cause.onset <= effect.onset)
    return cause.status == "flagged" and effect.mode in cause.explains and later


def _finding(
    rule: Rule, result: RuleResult, adjusted: float, level: float, outcome: Outcome, quantities: Quantities
) -> Finding:
    flagged = adjusted < level
    untold = math.isnan(adjusted) or bool(result.missing)
    status: Status = "flagged" if flagged else "cannot tell" if untold else "ok"
    if status == "ok" and (result.near or adjusted < ALMOST or (rule.limit and result.p < INSIDE)):
        status = "near the limit"
    return Finding(
        mode=result.mode if result.mode and flagged else rule.mode,
        status=status,
        because=result.because,
        evidence=result.evidence,
        advice=_advice(result.advice or rule.advice, result.onset) if flagged else "",
        source=rule.source,
        p=result.p,
        adjusted=adjusted,
        confidence=1 - adjusted if flagged else math.nan,
        onset=result.onset if flagged else None,
        missing=() if flagged else tuple(name for name in result.missing if not quantities.logged(name)),
        explains=result.explains if flagged else (),
        grade=grade(rule, result, outcome) if flagged else None,
        costs=rule.costs if flagged else "",
        brief=result.brief if flagged else "",
    )


def _advice(advice: str, onset: int | None) -> str:
    """The advice with the step for "the onset", where the step is known."""
    return advice if onset is None else advice.replace("the onset", f"step {onset:,}")
