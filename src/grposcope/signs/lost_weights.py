"""A KL that is back at its start from one step to the next: with the reward, weights were not resumed; while the reward
stays, it is the reference that was renewed."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Grade, Sign, fact
from grposcope.core.text import apart, number
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities

LOST, RENEWED = "weights lost at a restart", "reference moves along"

NEAR = 5
"""Rows on either side of a step, and from the beginning, that are compared."""

FELL = 5.0
"""Least KL of the rows before over the largest of the rows after."""

BACK = 3.0
"""Largest KL of the rows after over the largest of as many first rows, at most: it is back where it began."""

TAKEN = 0.6
"""Share of the gain of the reward that is lost at that step."""

DROPS, TIMES, FIRST_ROWS = 2.0, 3, 5
"""Times that the KL is smaller from one row to the next where its reference is renewed, how often at least, and the
first rows, in which it is small and noisy."""

WIDE = 10
"""Rows on either side of a row whose KL is exactly 0 that are compared."""

SURE = 4.0
"""Standard errors that the fall of the reward is, at least."""

FOLLOWS = ("reward decline", "held-out decline", "entropy explosion", "entropy collapse", "oscillation",
           "growing oscillation", "length")  # fmt: skip


def check(quantities: Quantities) -> Finding:
    """The first step from which KL and reward are those of the first steps."""
    kl, reward = quantities.require_computed_kl(), quantities.require("reward", LEAST)
    rows = _returns(kl)
    for row in rows:
        step = int(kl.steps[row])
        if (fall := _fall(reward, step)) is None:
            continue
        before, after = float(np.median(kl.values[row - NEAR : row])), float(np.median(kl.values[row : row + NEAR]))
        went, paid = " → ".join(apart(before, after)), " → ".join(apart(*fall))
        because = (
            f"at step {step:,} {quantities.key(kl.name)} goes back to where it began ({went} nats) and the reward with "
            f"it ({paid}): the run goes on from the first weights, as after a resume without its adapter or checkpoint"
        )
        evidence = (
            Sign(f"{kl.name}, {NEAR} rows before", before, column=kl.name),
            Sign(f"{kl.name}, {NEAR} rows after", after, column=kl.name),
        )
        brief = f"{quantities.key(kl.name)} {went} at step {step:,}, back at the start"
        return fact(True, because, evidence, step, explains=FOLLOWS, brief=brief)
    renewed = [row for row in rows if _stays(quantities, int(kl.steps[row]))]
    if renewed:
        return _renewed(quantities, kl, renewed)
    return (
        _at_an_interval(quantities, kl)
        or _exactly(quantities, kl)
        or fact(False, "KL and reward do not go back to their start at once")
    )


def _at_an_interval(quantities: Quantities, kl: MetricSeries) -> Finding | None:
    """That the KL falls at once at one interval, and rises in between: its reference is renewed; else None."""
    values = kl.values
    if values.min() < 0:
        return None
    with np.errstate(divide="ignore"):
        rows = np.flatnonzero(values[1:] * DROPS < values[:-1]) + 1
    rows = rows[rows >= FIRST_ROWS]
    gaps = np.diff(rows)
    if len(rows) < TIMES or np.ptp(gaps) > 1 or gaps.min() < NEAR or len(kl) - rows[-1] > gaps.max() + 1:
        return None
    spans = [slice(a, b) for a, b in pairwise([*rows.tolist(), len(kl)]) if b - a >= NEAR]
    if any(float(np.median(values[span][-2:])) < DROPS * float(np.median(values[span][:2])) for span in spans):
        return None
    key, every = quantities.key(kl.name), int(np.median(gaps))
    low, high = (float(np.median([values[row + at] for row in rows])) for at in (0, -1))
    because = (
        f"{key} falls at once at {len(rows)} steps, every {every} rows from step {int(kl.steps[rows[0]]):,} on "
        f"(medians before and after: {number(high)} and {number(low)} nats), and rises in between: its reference is "
        "renewed there, so that nothing limits how far the policy goes from its first weights"
    )
    evidence = (Sign(f"falls of {kl.name} by {DROPS:g} × or more", float(len(rows)), column=kl.name),)
    grades: tuple[Grade, Grade] = ("note", "warning")
    remedy = (
        "keep a frozen copy of the first weights as the reference, or renew it less often (TRL: sync_ref_model, "
        "ref_model_sync_steps); nothing, where it is meant and the held-out score rises"
    )
    return fact(True, because, evidence, int(kl.steps[rows[0]]), fault=RENEWED, grades=grades, remedy=remedy,
                explains=FOLLOWS, brief=f"{key} falls back every {every} rows")  # fmt: skip


def _renewed(quantities: Quantities, kl: MetricSeries, rows: list[int]) -> Finding:
    """A reference that was renewed at these rows: the KL is that of the start, and the reward stays."""
    row, key = rows[0], quantities.key(kl.name)
    step = int(kl.steps[row])
    before, after = float(np.median(kl.values[row - NEAR : row])), float(np.median(kl.values[row : row + NEAR]))
    went = " → ".join(apart(before, after))
    again = f", and again at {len(rows) - 1} later step{'s' * (len(rows) > 2)}" if len(rows) > 1 else ""
    because = (
        f"at step {step:,} {key} goes back to where it began ({went} nats){again}, and the reward stays: the policy "
        "goes on and its reference was renewed, as after a resume that takes the weights of the checkpoint for it; "
        "how far the policy is from its first weights is not what is penalised since"
    )
    evidence = (
        Sign(f"{kl.name}, {NEAR} rows before", before, column=kl.name),
        Sign(f"{kl.name}, {NEAR} rows after", after, column=kl.name),
    )
    grades: tuple[Grade, Grade] = ("note", "note")
    remedy = (
        "load the reference from the first weights before the checkpoint is loaded; nothing, where the reference is "
        "renewed on purpose"
    )
    brief = f"{key} {went} at step {step:,}, back at the start"
    return fact(True, because, evidence, step, fault=RENEWED, brief=brief, grades=grades, remedy=remedy)


def _exactly(quantities: Quantities, kl: MetricSeries) -> Finding | None:
    """A KL that is exactly 0 once more, as in the first row alone, and no gain of the reward that stays.

    That the policy is the reference at that step is a fact; which of the two changed is told by what is sampled.
    """
    zeros = np.flatnonzero(kl.values == 0)
    if len(zeros) != 2 or zeros[0] != 0 or not WIDE <= zeros[1] <= len(kl) - NEAR:
        return None
    row = int(zeros[1])
    step, before = int(kl.steps[row]), float(np.median(kl.values[row - NEAR : row]))
    if before < FELL * float(kl.values[row + 1]) or _stays(quantities, step):
        return None
    key = quantities.key(kl.name)
    because = (
        f"at step {step:,} {key} is exactly 0, as in the first row and in no other ({number(before)} nats before): the "
        "run goes on from the weights of its start, as after a resume without its adapter or checkpoint, or its "
        "reference was renewed"
    )
    evidence = (Sign(f"{kl.name}, {NEAR} rows before", before, column=kl.name),)
    brief = f"{key} is exactly 0 again at step {step:,}"
    grades: tuple[Grade, Grade] = ("warning", "warning")
    remedy = (
        "compare a checksum of the weights at that step with the checkpoint before it, and load these; nothing, where "
        "the reference is renewed on purpose"
    )
    return fact(True, because, evidence, step, explains=FOLLOWS, brief=brief, grades=grades, remedy=remedy)


def _stays(quantities: Quantities, step: int) -> bool:
    """Whether the reward had plainly risen by that step and most of the gain is still there after it."""
    reward = quantities.require("reward", LEAST)
    row = int(np.searchsorted(reward.steps, step))
    parts = reward.values[:NEAR], reward.values[max(row - WIDE, NEAR) : row], reward.values[row : row + WIDE]
    if min(map(len, parts)) < NEAR:
        return False
    first, before, after = (float(values.mean()) for values in parts)
    error = math.sqrt(sum(float(values.var(ddof=1)) / len(values) for values in parts[:2]))
    return before - first > SURE * error and after - first > (1 - TAKEN) * (before - first)


def _returns(kl: MetricSeries) -> list[int]:
    """Rows at which the KL falls at once to where it began."""
    values = kl.values
    begin = float(values[:NEAR].max())
    rows = []
    for row in range(2 * NEAR, len(values) - NEAR + 1):
        after = float(values[row : row + NEAR].max())
        if values[row - NEAR : row].min() > FELL * max(after, 0.0) and after <= BACK * begin:
            rows.append(row)
    return rows


def _fall(reward: MetricSeries, step: int) -> tuple[float, float] | None:
    """Levels of the reward before and from a step on, where it lost TAKEN of what it had gained; None where not."""
    row = int(np.searchsorted(reward.steps, step))
    if row < 2 * NEAR or row + NEAR > len(reward):
        return None
    first, before, after = (
        reward.values[span] for span in (slice(0, NEAR), slice(row - NEAR, row), slice(row, row + NEAR))
    )
    gain, lost = before.mean() - first.mean(), before.mean() - after.mean()
    noise = float(np.std(np.diff(reward.values[:row]))) / math.sqrt(2) * math.sqrt(2 / NEAR)
    if lost < TAKEN * gain or lost < SURE * noise or gain <= 0:
        return None
    return float(before.mean()), float(after.mean())


TEST = LogTest(
    LOST,
    check,
    needs=("kl", "reward"),
    statistic=f"KL of {NEAR} rows before and after each step against that of the first; reward likewise",
    threshold=f"KL falls {FELL:g} × to at most {BACK:g} × its start, and the reward loses {TAKEN:g} of its gain; or KL "
    f"is exactly 0 once more, and no gain of the reward stays; where the reward stays, or the KL falls {DROPS:g} × at "
    f"one interval, {TIMES} times or more, the reference was renewed",
)
