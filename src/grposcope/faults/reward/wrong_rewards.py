"""Logged rewards are not those that the reward function gives.

What it is
    Another version of the function, another text than the one that was written down, or a change of rewards in
    between.
How it shows
    Graded again, rewards differ, and no permutation explains it. In a log: the reward is higher from one row on, where
    neither the policy nor the held-out score moves.
What it does to the gradient
    It follows rewards that nobody stated.
What to do
    Log the text as it was graded, and the reward as the function gave it.
What decides
    Rewards graded again: grposcope verify FOLDER --reward MODULE:FUNCTION.
Sources
    method of this project"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.text import apart
from grposcope.maths.timeseries.noise import Array
from grposcope.signs import run_outcome
from grposcope.signs.heldout import heldout_scores
from grposcope.signs.jumps import WINDOW, jump, unmoved
from grposcope.signs.quantities import LEAST, Quantities
from grposcope.signs.rollouts.claims import rewards

_CLEAR = 3.5
"""Spreads of the rows on either side by which the reward is higher."""

_FOLLOWS = 0.5
"""Share of the jump that a held-out score of shares may have gained around it, and did not follow it."""

_LOW = 0.35
"""Share of a jump by which the rows right before it may have risen, and those from it on may be short of it."""

_EVALUATIONS = 3
"""Evaluations on either side of the jump that are compared."""

_OF_THE_GRADER = (
    "put completions from before and after that step to the reward function by hand, and see what changed there "
    "(function, answers, judge, prompts, template): the policy did not, so that this gain is not learned and rewards "
    "on either side do not compare"
)
"""What to do where the reward is higher from one row on."""


def _check(quantities: Quantities) -> Finding:
    """That the reward is higher from one row on where nothing that is sampled moves, nor a held-out score."""
    reward = quantities.require("reward", LEAST)
    row = None if quantities.run.window > 1 else jump(reward.values, 1, _CLEAR)
    said = "" if row is None else unmoved(quantities, reward.steps[row])
    beside = [] if row is None else [reward.values[row - 3 : row], reward.values[row : row + 3]]
    if not all(np.ptp(side) for side in beside):  # one value on end: nothing was graded there
        row = None
    falls = jump(reward.values, -1, _CLEAR) is not None  # levels in turn are of the data
    if row is not None and (falls or not _is_within_one_row(reward.values, row)):
        row = None
    if row is None or not said or _scored_with_it(quantities, row) or _data_begin_again(quantities, row):
        return fact(False, "the reward does not rise at one row alone, or the data begin again there")
    step = int(reward.steps[row])
    sides = reward.values[row - WINDOW : row], reward.values[row : row + WINDOW]
    before, after = (float(np.median(side)) for side in sides)
    first, last = apart(before, after)
    because = (
        f"the reward rises from {first} to {last} from one row to the next at step {step:,}, where what is sampled did "
        f"not move ({said})"
    )
    evidence = (Sign(f"reward, {WINDOW} rows before", before, column=reward.name),
                Sign(f"reward, {WINDOW} rows from there", after, column=reward.name))  # fmt: skip
    return fact(True, because, evidence, step, brief=f"reward {first} → {last} at step {step:,} alone",
                remedy=_OF_THE_GRADER, grades=("note", "note" if _learns(quantities) else "warning"))  # fmt: skip


def _learns(quantities: Quantities) -> bool:
    """Whether the held-out score rises over the run, so that what is gained is not the grader's alone."""
    outcome = run_outcome.of_run(quantities.run)
    return outcome.heldout and outcome.direction == "up"


def _is_within_one_row(values: Array, row: int) -> bool:
    """Whether the two rows before the jump of rewards (n,) are near its lower level, and the two from it on near its
    upper one: learning takes several rows."""
    before, after = (float(np.median(side)) for side in (values[row - WINDOW : row], values[row : row + WINDOW]))
    risen = (values[row - 2 : row + 2] - before) / (after - before)
    return bool((risen[:2] < _LOW).all() and (risen[2:] > 1 - _LOW).all())


def _data_begin_again(quantities: Quantities, row: int) -> bool:
    """Whether the logged epoch goes back about the row, so that prompts come that were trained on."""
    epoch, step = quantities.column("epoch"), quantities.require("reward", LEAST).steps[row]
    there = np.array([]) if epoch is None else epoch.values[np.abs(epoch.steps - step) <= _EVALUATIONS]
    return bool((np.diff(there) < 0).any())


def _scored_with_it(quantities: Quantities, row: int) -> bool:
    """Whether the held-out score rises around the row by _FOLLOWS of what the reward does."""
    reward = quantities.require("reward", LEAST)
    size = float(reward.values[row : row + WINDOW].mean() - reward.values[row - WINDOW : row].mean())
    for held in heldout_scores(quantities)[:1]:
        before = held.score.values[held.score.steps < reward.steps[row]][-_EVALUATIONS:]
        after = held.score.values[held.score.steps >= reward.steps[row]][:_EVALUATIONS]
        if len(before) and len(after) and float(after.mean() - before.mean()) > _FOLLOWS * size:
            return True
    return False


FAULT = Fault(
    name="wrong rewards",
    rank=6.6,
    remedy="log the text as it was graded, and find what changes rewards after the function",
    beside="warning",
    log=LogTest(
        "wrong rewards",
        _check,
        needs=("reward",),
        statistic="straight line through the rewards from a row on less that through those before it, and the levels "
        "of KL, entropy, length and held-out score on either side",
        threshold=f"{_CLEAR:g} spreads, and nothing else moves",
        where_logged=True,
    ),
    rollouts=(rewards.PROOF,),
)
