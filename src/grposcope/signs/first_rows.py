"""What the first rows of a log say exactly, too few for any test: no gradient, every completion cut, every group dead.

A fact needs no test, but it is one of these rows alone: it is a warning, and says of how many rows. The tests of
`faults` take over as soon as they have the rows that they need.
"""

from __future__ import annotations

import math

import numpy as np

from grposcope.core.finding import Finding, Grade, Sign, fact
from grposcope.core.text import brief as short
from grposcope.core.text import number
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities
from grposcope.signs.rewards_differ import rewards_differ

FEW_NORMS = 2
"""Rows from which a gradient norm of 0 in all of them is worth a word: the first may be logged before a step."""

FEW_GROUPS = 5
"""Rows from which groups that are all dead are: hard prompts begin so."""

FEW_REWARDS = 3
"""Rows from which one reward in all of them, without a gradient in any, is."""

NEARLY_ALL = 0.9
"""Share of completions cut at the token limit, in every row, that leaves hardly any answer to be paid."""

WARNING: tuple[Grade, Grade] = ("warning", "warning")

GRADE_BY_HAND = (
    "run the reward function by hand on a right answer, on a wrong one and on an empty one before training goes on, "
    "and read what the model wrote"
)
"""What to do where nothing was paid more than anything else."""

READ_ENDS = (
    "read ten completions at the limit to their end: where they are unfinished, raise the limit to two or three times "
    "a finished answer; where they are finished, give the trainer the model's own end token"
)
"""What to do where hardly any completion ends."""


def no_gradient(quantities: Quantities) -> Finding | None:
    """A gradient norm of exactly 0 in all of fewer than LEAST rows, while rewards differ; None where that is not so."""
    norm, kl = quantities.column("grad_norm"), quantities.column("kl")
    if norm is None or not FEW_NORMS <= len(norm) < LEAST or norm.values.any():
        return None
    differ = rewards_differ(quantities, FEW_NORMS)
    if not differ or (kl is not None and kl.values.any()):
        return None
    still = ", and so is the KL" if kl is not None else ""
    rows = f"{quantities.key(norm.name)} is 0 in {_all_rows(norm)}"
    return fact(
        True, f"{rows}{still}, although {differ}", (Sign("largest gradient norm", 0.0, column=norm.name),),
        grades=WARNING, brief=f"{rows}, although {differ}", explains=("empty steps", "zero loss"),
    )  # fmt: skip


def every_one_cut(quantities: Quantities) -> Finding | None:
    """Nearly all completions at the token limit in all of fewer than SHORT rows; None where that is not so."""
    cut, length = quantities.column("truncated"), quantities.column("length")
    if cut is None or len(cut) >= SHORT or not NEARLY_ALL <= cut.values.min() <= cut.values.max() <= 1:
        return None
    least, most = quantities.column("length_min"), quantities.column("length_max")
    whole = bool((cut.values == 1).all())
    if whole and least is not None and most is not None and least.values.min() < most.values.max():
        return None  # those that are cut are all as long
    at = "" if length is None or np.ptp(length.values) else f", after {number(float(length.values[0]))} tokens"
    share = (
        "every completion is" if whole else f"at least {math.floor(100 * cut.values.min() + 1e-9)}% of completions are"
    )
    rows = f"{share} cut at the token limit in {_all_rows(cut)}"
    signs = (Sign("least share of cut completions", float(cut.values.min()), column=cut.name),)
    return fact(True, rows + at, signs, grades=WARNING, brief=rows, remedy=READ_ENDS, explains=("starved",))


def every_group_dead(quantities: Quantities) -> Finding | None:
    """Equal rewards within every group, in all of at least FEW_GROUPS rows and fewer than SHORT, or, where mean rewards
    differ, than LEAST; else None."""
    dead, reward = quantities.column("dead_fraction"), quantities.column("reward")
    spread = quantities.column("reward_std")
    if dead is not None and bool((dead.values == 1).all()):
        seen, sign = dead, Sign("least share of dead groups", 1.0, column=dead.name)
    elif dead is None and spread is not None and not spread.values.any():
        seen, sign = spread, Sign("largest spread of the rewards", 0.0, column=spread.name)
    else:
        return _nothing_paid(quantities) if dead is None and spread is None else None
    constant = reward is not None and not np.ptp(reward.values)
    if not FEW_GROUPS <= len(seen) < (SHORT if constant or reward is None else LEAST):
        return None
    paid = f", each of {short(float(reward.values[0]))}" if reward is not None and constant else ""
    brief = f"rewards within every group are equal in {_all_rows(seen)}"
    fault = "constant reward" if paid and reward is not None and reward.values.any() else ""
    remedy = GRADE_BY_HAND if constant else ""
    return fact(True, brief + paid, (sign,), fault=fault, grades=WARNING, brief=brief, remedy=remedy)


def _nothing_paid(quantities: Quantities) -> Finding | None:
    """One mean reward and no gradient in all of at least FEW_REWARDS and fewer than SHORT rows; else None."""
    reward, norm = quantities.column("reward"), quantities.column("grad_norm")
    if reward is None or norm is None or not FEW_REWARDS <= min(len(reward), len(norm)) <= len(reward) < SHORT:
        return None
    if np.ptp(reward.values) or norm.values.any():
        return None
    because = f"the reward is {short(float(reward.values[0]))} and {quantities.key(norm.name)} 0 in {_all_rows(reward)}"
    signs = (Sign("rows of one value without a gradient", float(len(reward)), column=reward.name),)
    fault = "constant reward" if reward.values.any() else ""
    return fact(True, because, signs, fault=fault, grades=WARNING, brief=because, remedy=GRADE_BY_HAND)


def _all_rows(series: MetricSeries) -> str:
    """All rows of a series, in words."""
    return f"all {len(series)} {series.rows}" if len(series) > 1 else "the one row that is logged"
