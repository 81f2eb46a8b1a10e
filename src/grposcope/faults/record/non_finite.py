"""Loss, gradient norm, reward, KL or entropy is NaN or infinite.

Asked as
    grad_norm is NaN
What it is
    An update overflowed, log(0) was taken, a mask was empty, or the grader returned no number. Weights may be NaN
    from then on.
How it shows
    A value that was written as NaN or infinity; a null as loss or gradient norm in a row that has all the rest; a
    log-probability or derivative of a trained token that is none.
What it does to the gradient
    One NaN in the loss makes every weight NaN, unless the step is skipped.
What to do
    Look at the batch of the first step with such a value. Lower the learning rate, clip the gradient, check for
    log(0), for empty masks and for float16 overflow; go back to a checkpoint from before.
What decides
    The first step at which a value is not finite, and whether the reward or the update came first.
Sources
    verl #2505: https://github.com/verl-project/verl/issues/2505
    ms-swift #8123, a reward of None: https://github.com/modelscope/ms-swift/issues/8123
    NeMo-RL #1885, log-probabilities of the sampler: https://github.com/NVIDIA-NeMo/RL/pull/1885
    verl #721, old log-probabilities, then "!!!!": https://github.com/verl-project/verl/issues/721
    TTRL #33, in every row: https://github.com/PRIME-RL/TTRL/issues/33
    SkyRL #1633, the logged value alone: https://github.com/NovaSky-AI/SkyRL/issues/1633
    TRL #3015, exp of the KL: https://github.com/huggingface/trl/issues/3015
    verifiers #1546, a metric of weight 0: https://github.com/PrimeIntellect-ai/verifiers/pull/1546
    open-r1 #704: https://github.com/huggingface/open-r1/issues/704
    ms-swift #3136: https://github.com/modelscope/ms-swift/issues/3136
    ms-swift #4465: https://github.com/modelscope/ms-swift/issues/4465
    method of this project
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Grade, Interval, Sign, fact
from grposcope.core.metrics import VARIANTS
from grposcope.core.not_finite import (
    MEASURED,
    REWARD,
    UPDATE,
    Bools,
    Floats,
    is_written_nan,
    is_written_null,
    not_finite,
)
from grposcope.core.text import number
from grposcope.signs import run_outcome
from grposcope.signs.quantities import MetricSeries, Quantities
from grposcope.signs.rollouts.claims import gradient, rewards

LASTING = 3
"""Rows up to the end in which KL, entropy and the like are not finite, from which on they are lost for good."""

OF_REWARD = (
    "make the reward function return a finite number for any text: it returned infinity or NaN (a "
    "division by zero, log(0), a failed parse or a timeout); return None or 0 for a reward that "
    "cannot be computed"
)
"""What to do where the reward was not finite first: the optimiser only took it up."""


AT_ONCE = (
    "it is so from the first update, before any weight moved, so that no learning rate is to blame: look at the first "
    "batch for rows whose mask is empty, a mean over none (a micro-batch larger than the mini-batch, accumulation), "
    "log(0) and float16 overflow (train in bfloat16)"
)
"""What to do where the first row is not finite: nothing had been learned yet."""

OF_POLICY = (
    "look at the policy before the reward function: no reward makes KL or entropy of the same rows not finite. Compute "
    "the log-probabilities of that step's first batch; where those are not finite, the weights are not: go back to the "
    "last checkpoint whose weights are all finite, lower the learning rate, and train in bfloat16"
)
"""What to do where reward and what is measured of the policy were lost in the same rows."""

OF_NO_TOKEN = (
    "count the tokens trained on in each micro-batch of such a step: a mean over none is NaN (every completion of it "
    "masked as truncated, empty, or a tool's); the gradient norm of the same rows is finite, so that the update was "
    "not lost"
)
"""What to do where only what is measured beside the update is not finite, in some rows."""

OF_LOGGED_VALUE = (
    "weights and rate need no change: the gradient norm of the same rows is finite, and so are later rows, so that the "
    "logged value was lost and the weights were not, as by a term that is multiplied by its mask where a "
    "log-probability outside it is none (0 × NaN is NaN as a value and 0 as a gradient): select by the mask (where, "
    "masked_fill) before the sum, or take a newer version"
)
"""What to do where the loss is not finite in some rows and its gradient is."""

OF_OVERFLOW = (
    "the KL is infinite in the row that lost the update, and was {before} at most in the {rows} before: its estimate "
    "(k3) takes exp of the distance to the reference, which overflows where single tokens lie far from it. Go back to "
    "a checkpoint from before it grew, and lower the learning rate; bound that distance before exp, and skip updates "
    "whose gradient norm is not finite"
)
"""What to do where the KL was infinite, and not NaN, first: {before} is its largest value of {rows} before."""

BEFORE = 20
"""Rows before an infinite KL whose largest value is told."""

OF_SAMPLER = (
    "the comparison with the sampler is not finite in the same row, and later rows are finite, so that the weights "
    "were not lost: draw such a batch again, or leave out rollouts whose log-probabilities are not finite, and see "
    "which engine, kernel or cache returned them"
)
"""What to do where the comparison with the sampler was lost in the same rows."""

OF_BACKWARD = (
    "the loss of that row is finite, and its gradient is not: look at the rewards of the batch first (a function that "
    "returned None or NaN makes advantages NaN where each reward is standardized alone, as by gdpo), then in the "
    "backward pass for infinity × 0, a ratio that overflows under a mask: clamp the log-ratio before exp; in float16, "
    "which ends at 65,504, such single rows are overflows: train in bfloat16"
)
"""What to do where the gradient norm alone was lost first."""

OF_LOG_PROBABILITIES = (
    "the log-probabilities of that step were not finite, which its KL or entropy shows, and nothing that was lost is "
    "finite again: the weights were lost with it. Go back to a checkpoint from before; score the batch of that step "
    "again for the first rollout whose log-probabilities are not finite, and skip updates whose gradient norm is not"
)
"""What to do where what is measured of the policy and its update were lost in one row, for good."""

PASSED = "; later rows are finite, so that the weights were not lost"
LASTS = "; go back to a checkpoint from before"

EXPLAINS = (
    "zero learning rate", "constant reward", "never paid", "dead after a fall", "starved", "empty steps", "zero loss",
    "reward decline", "held-out decline", "length", "degenerate output", "lost gradient", "entropy collapse",
    "kl blow-up", "gradient explosion", "answers shorten", "update not applied", "one text", "gibberish",
    "no learning",
)  # fmt: skip
"""Faults that follow from weights that are no numbers, where they begin no earlier."""


def _check(quantities: Quantities) -> Finding:
    """One value that is not finite is enough: what is known exactly needs no test, and no further row.

    Grades. Loss, gradient norm or reward that is not finite in its last row is failing: the update that it went into
    may have spoilt the weights for good, and no later row says otherwise. KL, entropy and whatever else is measured
    beside the update may lose single values to 0 × log 0; not finite in the last LASTING rows, they are gone and that
    is failing. Whatever passed again is a warning, and failing only where the run stopped learning or never began to;
    a single row is a warning whatever became of the run.
    """
    table = quantities.run.table
    found = not_finite(table)
    if not found:
        return fact(False, "all values are finite")
    first = {name: int(np.flatnonzero(rows)[0]) for name, rows in found.items()}
    names = sorted(found, key=first.__getitem__)
    evidence = tuple(
        Sign(
            f"rows in which {quantities.key(name)} is {_lacking(table[name], found[name])}",
            float(found[name].sum()),
            column=name,
        )
        for name in names
    )
    what = " and ".join(
        f"{quantities.key(name)} is {_lacking(table[name], found[name])} on {_rows(int(found[name].sum()))}"
        for name in names
    )
    steps = MetricSeries("step", table["step"], table["step"])
    rows = f"{len(steps)} {steps.rows}"
    worst = max(names, key=lambda name: int(found[name].sum()))
    brief = f"{quantities.key(worst)} is {_lacking(table[worst], found[worst])} in {int(found[worst].sum())} of {rows}"
    lost = np.flatnonzero(np.any(list(found.values()), axis=0))
    began = Interval(int(table["step"][lost[0]]))
    if len(lost) == 1 and _ended(table, found):
        began = replace(began, told="at")
        brief = f"{quantities.key(worst)} is {_lacking(table[worst], found[worst])} {began}"
    since = began if lost[0] or _ended(table, found) else None  # of the whole run: what has no first step follows too
    return fact(
        True, what, evidence, since=since, remedy=_remedy(table, found, first),
        grades=_grades(table, found, quantities), brief=brief,
        explains=() if _ended(table, found) else EXPLAINS,
    )  # fmt: skip


def _remedy(table: Mapping[str, Floats], found: Mapping[str, Bools], first: Mapping[str, int]) -> str:
    """What to do, by what was lost in the first row that lost anything; empty for the fault's own remedy."""
    row = min(first.values())
    at_first = {name for name in found if first[name] == row}
    if at_first & set(REWARD):
        return OF_POLICY if at_first & set(MEASURED) else OF_REWARD
    if _at_once(first):
        return AT_ONCE
    lasts = any(_lasts(name, found[name], table[name]) for name in found)
    if not lasts and _of_sampler(table, row):
        return OF_SAMPLER
    if at_first & set(UPDATE) and (told := _overflow(table, row)):
        return told
    if lasts and at_first & set(MEASURED) and _is_lost(table, found, row):
        return OF_LOG_PROBABILITIES
    if at_first == {"grad_norm"} and _is_finite(table, VARIANTS["loss"], row):
        return OF_BACKWARD + (LASTS if lasts else PASSED)
    if not _is_passed(table, found):
        return ""
    if set(found) <= set(MEASURED):
        return OF_NO_TOKEN
    return OF_LOGGED_VALUE if set(found) <= {*VARIANTS["loss"], *MEASURED} else ""


def _overflow(table: Mapping[str, Floats], row: int) -> str:
    """What to do where the KL to the reference is infinite in this row and finite in each of BEFORE rows before; empty
    where it is not so."""
    for name in VARIANTS["kl"]:
        column = table.get(name)
        if column is None or row < BEFORE or not np.isinf(column[row]):
            continue
        before = column[row - BEFORE : row]
        if np.isfinite(before).all():
            return OF_OVERFLOW.format(before=f"{number(float(before.max()))} nats", rows=_rows(BEFORE))
    return ""


def _is_lost(table: Mapping[str, Floats], found: Mapping[str, Bools], row: int) -> bool:
    """Whether loss or gradient norm was lost in this row, and all of either, and of what was lost with it, is lost in
    every row after it."""
    update = [name for name in found if name in UPDATE and found[name][row]]
    lost = [name for name in found if found[name][row]]
    return bool(update) and all(not np.isfinite(table[name][row:]).any() for name in lost)


def _of_sampler(table: Mapping[str, Floats], row: int) -> bool:
    """Whether a comparison of trainer and sampler was written as NaN, or is infinite, in a row."""
    compared = [column for name, column in table.items() if name.startswith("mismatch/")]
    return any(bool(is_written_nan(column)[row]) or bool(np.isinf(column[row])) for column in compared)


def _is_finite(table: Mapping[str, Floats], names: Sequence[str], row: int) -> bool:
    """Whether one of these metrics has a finite number in a row."""
    return any(name in table and bool(np.isfinite(table[name][row])) for name in names)


def _is_passed(table: Mapping[str, Floats], found: Mapping[str, Bools]) -> bool:
    """Whether what was lost is finite again at the end, and the gradient norm of the rows that lost it is."""
    norms = table.get("grad_norm")
    rows = np.any(list(found.values()), axis=0)
    return norms is not None and _ended(table, found) and bool(np.isfinite(norms[rows]).all())


def _at_once(first: Mapping[str, int]) -> bool:
    """Whether loss or gradient norm is not finite in the first row already."""
    return any(first.get(name, 1) == 0 for name in UPDATE)


def _grades(
    table: Mapping[str, Floats], found: Mapping[str, Bools], quantities: Quantities
) -> tuple[Grade, Grade] | None:
    """Grades beside learning that goes well and where it does not; None for the fault's own."""
    if not _ended(table, found):
        return "failing", "failing"
    single = np.any(list(found.values()), axis=0).sum() == 1
    untold = run_outcome.of_run(quantities.run).fate == "cannot tell"
    return ("warning", "warning") if untold or single else None


def _ended(table: Mapping[str, Floats], found: Mapping[str, Bools]) -> bool:
    """Whether every metric is a number again at the end."""
    return not any(_lasts(name, found[name], table[name]) for name in found)


def _lasts(name: str, wrong: Bools, column: Floats) -> bool:
    """Whether a metric is not finite up to the end: rows since in which it was not logged say nothing."""
    logged = wrong | np.isfinite(column)
    last = wrong[logged][-1 if name in (*UPDATE, *REWARD) else -LASTING :]
    return bool(last.all()) and len(last) > 0


def _lacking(column: Floats, wrong: Bools) -> str:
    """What stands in the log in place of a number."""
    return "null" if bool(is_written_null(column)[wrong].all()) else "not finite"


def _rows(count: int) -> str:
    return f"{count} {'row' if count == 1 else 'rows'}"


FAULT = Fault(
    name="non-finite",
    rank=20,
    remedy="lower the learning rate, clip the gradient, check for log(0) and for float16 overflow",
    beside="warning",
    log=LogTest(
        "non-finite",
        _check,
        needs=(),
        statistic="infinite values, and NaN where a number is expected",
        threshold="one is enough",
    ),
    rollouts=(gradient.PROOF, rewards.PROOF),
)
