"""All tests of a log, weighed together: findings in the order of what to look at first.

Many tests look at one run, so each p-value is adjusted by Holm's method over those that could test something: the
chance that a run without any fault has any finding that is present is at most `level`, whatever the dependence between
the tests. At the strictest, a fault is present at p < level / (number of tests). Facts are read off without noise: they
cannot raise a false alarm and are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import GRADES, STATUSES, Finding, Grade, Status, cannot_tell
from grposcope.core.run import Run
from grposcope.faults import catalogue, pages
from grposcope.maths.holm import holm
from grposcope.signs import checkpoints, run_outcome, words
from grposcope.signs.equal_groups import ALL as ALL_DEAD
from grposcope.signs.outcome import Outcome
from grposcope.signs.quantities import LEAST, NotLoggedError, Quantities

LEVEL = 0.05
"""Chance of any fault called present on a run without faults."""

ALMOST = 0.2
"""Adjusted p-value below which a fault that is not present is possible: it is almost shown."""

INSIDE = 0.95
"""p-value of a test of a limit above which the level is clearly inside it; below, it is near the limit."""


_LASTED = 200
"""Rows from which a fault that sound runs begin with and outgrow has lasted: before, a run that goes on has not failed
by it, unless nothing can be learned from any of its rows."""


def diagnose(run: Run, level: float = LEVEL) -> tuple[Finding, ...]:
    """Findings of all tests on the log of a run: those that are present first, the worst grade before the others, then
    those that are possible, those that cannot be told, and those that are excluded.

    level: chance of any present one on a run without faults.
    """
    return diagnose_together([run], level)[0]


def diagnose_together(runs: Sequence[Run], level: float = LEVEL) -> list[tuple[Finding, ...]]:
    """The findings of each of several runs as in `diagnose`, held to the chance `level` of any present one on any run.

    Holm's method goes over the tests of all runs, so the environments of one run may be looked at one by one.
    """
    if any(run.in_turn for run in runs):
        tasks = [[*run.scopes.values()] if run.in_turn else [run] for run in runs]
        each = iter(diagnose_together([task for of_run in tasks for task in of_run], level))
        return [
            _of_tasks(run, [next(each) for _ in of_run]) if run.in_turn else next(each)
            for run, of_run in zip(runs, tasks, strict=True)
        ]
    tests, faults = catalogue.log_tests(), catalogue.faults()
    seen = [Quantities(run) for run in runs]
    results = [_result(test, quantities) for quantities in seen for test in tests]
    adjusted = holm([result.p for result in results])
    weighed = [
        _weighed(tests[k % len(tests)], replace(result, adjusted=p), level, seen[k // len(tests)], faults)
        for k, (result, p) in enumerate(zip(results, adjusted, strict=True))
    ]
    return [
        in_order(_once([*_told(tests, weighed[k * len(tests) : (k + 1) * len(tests)]), *_of_reading(run, faults)]))
        for k, run in enumerate(runs)
    ]


def _of_tasks(run: Run, findings: Sequence[Sequence[Finding]]) -> tuple[Finding, ...]:
    """The findings of a run whose rows are of several tasks in turn: of each fault that of the task that has it worst,
    which is named."""
    named = [
        replace(
            finding,
            because=f"{task}: {finding.because}",
            brief=finding.brief and f"{task}: {finding.brief}",
            evidence=tuple(replace(sign, what=f"{task}: {sign.what}") for sign in finding.evidence),
        )
        if finding.present
        else finding
        for task, of_task in zip(run.scopes, findings, strict=True)
        for finding in of_task
    ]
    worst: dict[str, Finding] = {}
    for finding in in_order(named):
        worst.setdefault(finding.fault, finding)
    return tuple(worst.values())


def _told(tests: Sequence[LogTest], findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those of tests that look at what few runs log, where this one does not."""
    both = zip(tests, findings, strict=True)
    return [finding for test, finding in both if not (test.where_logged and finding.status == "cannot tell")]


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without what denies a fault that is present: a test may show a fault that another looks for."""
    present = {finding.fault for finding in findings if finding.present}
    return [finding for finding in findings if finding.present or finding.fault not in present]


def _of_reading(run: Run, faults: Mapping[str, Fault]) -> list[Finding]:
    """What was found when the log was read."""
    return [
        replace(
            finding, fault=fault.name, remedy=finding.remedy or fault.remedy, source=page.source,
            decides=finding.decides or (page.decides if finding.present else ""),
        )
        for fault in faults.values()
        if fault.reading is not None
        for page in [pages.page(fault)]
        for finding in fault.reading(run)
    ]  # fmt: skip


def _result(test: LogTest, quantities: Quantities) -> Finding:
    """What a test saw, or what few rows say exactly; else "cannot tell" where a quantity is not logged on enough."""
    try:
        result = test.check(quantities)
    except NotLoggedError as reason:
        result = cannot_tell(str(reason), reason.quantity)
    few = result.basis != "fact" and quantities.run.steps < LEAST
    if test.early is not None and (few or result.status == "cannot tell"):
        result = test.early(quantities) or result
    return result if result.fault else replace(result, fault=test.fault)


def _weighed(
    test: LogTest, result: Finding, level: float, quantities: Quantities, faults: Mapping[str, Fault]
) -> Finding:
    """A finding with its status, and with the grade and remedy of its fault where it is present."""
    status = _status(test, result, level)
    if status != "present":
        missing = tuple(name for name in result.missing if not quantities.logged(name))
        named = replace(result, fault=test.fault, status=status, remedy="", brief="", since=None, explains=())
        return replace(named, missing=missing, grades=None, begins=None, source=pages.page(faults[test.fault]).source)
    fault, outcome = faults[result.fault], run_outcome.of_run(quantities.run)
    since = result.since or (result.begins() if result.begins is not None else None)
    graded = grade(fault, result, outcome)
    if graded == "failing" and fault.outgrown and since is None and _may_be_outgrown(quantities, outcome):
        graded = "warning"
    back = checkpoints.back(quantities.run, outcome, since, gamed=fault.gamed)
    return replace(
        result, status=status, missing=(), grade=graded, since=since, begins=None,
        effect=result.effect or fault.effect, remedy=checkpoints.advised(result.remedy or fault.remedy, back, since),
        decides=result.decides or pages.page(fault).decides, source=pages.page(fault).source,
    )  # fmt: skip


def _status(test: LogTest, result: Finding, level: float) -> Status:
    if result.basis == "fact":
        return "cannot tell" if result.status == "excluded" and result.missing else result.status
    if result.adjusted < level:
        return "present"
    if math.isnan(result.adjusted) or result.missing:
        return "cannot tell"
    near = result.status == "possible" or result.adjusted < ALMOST or (test.limit and result.p < INSIDE)
    return "possible" if near else "excluded"


def grade(fault: Fault, result: Finding, outcome: Outcome) -> Grade:
    """The grade of a fault that is present, from what became of the run: by the table of `signs.words`.

    What no reward shows keeps its grade where only the reward says the outcome. What fails beside learning too fails
    whatever became of the run.
    """
    beside, instead = result.grades or (fault.beside, fault.instead)
    if fault.gamed and not outcome.heldout:
        return instead
    weighed = words.weighed(outcome.state, "fact" if result.basis == "fact" or beside == "failing" else "shown")
    if weighed == "beside":
        return beside
    return instead if weighed == "instead" else max(instead, "warning", key=GRADES.index)


def _may_be_outgrown(quantities: Quantities, outcome: Outcome) -> bool:
    """Whether a run that goes on may still learn itself out of what has been so from its first rows: it has fewer than
    _LASTED rows, it has not fallen, and some of them have what can be learned from."""
    run = quantities.run
    goes_on = run.meta.status == "running" and run.steps < _LASTED and outcome.direction != "down"
    return goes_on and not _nothing_to_learn(quantities)


def _nothing_to_learn(quantities: Quantities) -> bool:
    """Whether in every row all groups are dead, the gradient or the spread of the rewards is 0, all rewards are one
    number, which leaves nothing to learn from, or every completion is cut, so that none shows how to end."""
    dead, cut = quantities.dead_fraction, quantities.column("truncated")
    norm, spread, reward = (quantities.column(name) for name in ("grad_norm", "reward_std", "reward"))
    if dead is not None and not quantities.dead_fraction_is_bound and ALL_DEAD <= dead.values.min() <= 1:
        return True
    if cut is not None and cut.values.min() == cut.values.max() == 1:
        return True
    if any(series is not None and not series.values.any() for series in (norm, spread)):
        return True
    return reward is not None and not np.ptp(reward.values)


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings in the order of what to look at first: status, grade, then rank, what explains others before these."""
    ranks = _ranks(findings)
    keys = [_place(finding, rank, findings) for finding, rank in zip(findings, ranks, strict=True)]
    return tuple(findings[k] for k in sorted(range(len(findings)), key=keys.__getitem__))


def _place(finding: Finding, rank: float, findings: Sequence[Finding]) -> tuple[int, int, float]:
    effects = [other for other in findings if other.present and explains(finding, other)]
    worst = min((GRADES.index(judged.grade) for judged in (finding, *effects) if judged.grade is not None), default=0)
    return STATUSES.index(finding.status), worst, rank


def _ranks(findings: Sequence[Finding]) -> list[float]:
    """The rank of each finding, which is below that of every finding that it explains, of causes of causes too."""
    faults = catalogue.faults()
    ranks = [faults[finding.fault].rank for finding in findings]
    present = [k for k, finding in enumerate(findings) if finding.present]
    behind = {k: [j for j in present if j != k and explains(findings[k], findings[j])] for k in present}
    for _ in present:  # as long as the longest chain of causes
        for k in present:
            ranks[k] = min([ranks[k], *(ranks[j] - 0.5 for j in behind[k] if k not in behind[j])])
    return ranks


def facts(findings: Sequence[Finding]) -> list[tuple[Finding, list[Finding]]]:
    """Findings that are present, each with those behind it that it implies, which are the same fact seen otherwise."""
    faults = catalogue.faults()
    heads: list[tuple[Finding, list[Finding]]] = []
    for finding in findings:
        if finding.present:
            same = next((more for head, more in heads if finding.fault in faults[head.fault].implies), None)
            heads.append((finding, [])) if same is None else same.append(finding)
    return heads


OF_THE_LOSS = ("entropy explosion", "kl against its penalty", "kl penalty outweighs the reward")
"""Faults of a term of the loss, which acts in every later row: what has no first step may follow from them."""


def explains(cause: Finding, effect: Finding) -> bool:
    """Whether a fault that is present is the cause of another: it says so, and it begins no later, or with the run, or
    is OF_THE_LOSS and the other was measured without a first step."""
    if cause.since is None or effect.since is None:
        in_time = cause.since is None or (cause.fault in OF_THE_LOSS and effect.basis != "fact")
    else:
        in_time = cause.since.first <= effect.since.last
    return cause.present and effect.fault in cause.explains and in_time
