"""The late reward is below the early one, or below that of the middle of the run.

What it is
    The policy became worse at its prompts, or the prompts became harder.
How it shows
    A fitted curve, a line or a drop between two levels falls by more than slow random drift explains.
What it does to the gradient
    It does not say by itself; see what changed before the fall.
What to do
    Go back to the checkpoint before the onset and lower the learning rate.
What decides
    Both checkpoints on the same prompts: grposcope evaluate BEFORE AFTER.
Sources
    method of this project
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import ndtr

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Grade, measured
from grposcope.maths.timeseries.noise import Array
from grposcope.maths.timeseries.onset import CLEAR, at_once
from grposcope.signs import onset, run_outcome
from grposcope.signs.moves_alone import distance
from grposcope.signs.outages import without_outages
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities
from grposcope.signs.tests import any_of, ends, fell
from grposcope.signs.thresholds import STILL

MIDDLE = (0.4, 0.6)
"""The middle of the run."""

SEEN = 0.01
"""p-value of a fall in white noise below which a run is not called ok: only a wandering may explain it."""

AROUND, TIMES = 5, 2.0
"""Steps on either side of a jump whose KL is compared, and how many times it may be what it was."""

WINDOW = 12
"""Rows on either side of a jump within which the reward falls at once."""

OF_A_STAGE = (
    "find out what else changed at that step, for the policy did not: the prompts (another stage of a curriculum, "
    "another file), the reward function, the template or the token limit; rewards before and after it do not compare"
)
"""What to do where the reward is lower from one row on and rises again."""

BEYOND = 0.05
"""p-value below which a fall is more than wandering explains, as in the sentence on what was learned."""


def check(quantities: Quantities) -> Finding:
    """Whether the reward fell: as a curve, as a line, or within a few rows."""
    reward = quantities.require("reward")
    steady = without_outages(reward)
    curve, line = steady.curve, steady.line
    falls = [curve.change(), curve.change(MIDDLE), *([] if line is None else [line.change()])]
    because = f"the reward {fell(run_outcome.of_reward(quantities))}"
    tests = [measured(fall.p_down, because, ends(reward)) for fall in falls]
    if steady.shift is not None:
        tests.append(measured(steady.shift.p if steady.shift.size < 0 else 1.0, because, ends(reward)))
    worst = any_of(tests)
    if reward.present.smoothed:  # rows of an exponential average: their levels say how little they show
        worst = replace(worst, p=max(worst.p, reward.present.loss.p_down))
    white = min(curve.if_white.change().p_down, curve.if_white.change(MIDDLE).p_down)
    missing = () if 2 * white >= SEEN else ("longer run",) if reward.sampling is not None else ("rollouts",)
    untold = "" if not missing or worst.p < BEYOND else ", which may be slow random drift"
    worst = replace(worst, p=min(worst.p, _lost(quantities)))
    outcome = run_outcome.of_run(quantities.run)
    beside = outcome.by_heldout or (outcome.heldout and outcome.direction == "up")
    grades: tuple[Grade, Grade] | None = ("warning", "warning") if _may_return(quantities) else None
    if beside or _is_little(quantities):
        grades = ("note", "note")
    stage = _stage(quantities, reward)
    return measured(
        worst.p, worst.because + (untold or stage), worst.evidence, missing=missing, grades=grades,
        brief=worst.because, begins=partial(onset.since, reward, -1), remedy=OF_A_STAGE if stage else "",
    )  # fmt: skip


def _may_return(quantities: Quantities) -> bool:
    """Whether the run goes on and its fall is not plain to see, or took a part of what it gained, so that it is still
    above its start."""
    outcome = run_outcome.of_run(quantities.run)
    above = outcome.fate == "lost" and outcome.end.value > outcome.start.value
    return quantities.run.meta.status == "running" and (above or outcome.state == "down")


def _is_little(quantities: Quantities) -> bool:
    """Whether the reward is lower than at its best by less than STILL of its range, and so stayed in words."""
    outcome, margin = run_outcome.of_reward(quantities), quantities.reward_margin(STILL)
    loss = max(outcome.best.value, outcome.start.value) - outcome.end.value
    return outcome.direction != "down" and margin is not None and loss < margin


def _lost(quantities: Quantities) -> float:
    """The p-value of the loss where the outcome of the run is that the reward was lost; 1 where it is not."""
    outcome = run_outcome.of_reward(quantities)
    if outcome.fate != "lost" or not outcome.change.se > 0:
        return 1.0
    return float(2 * ndtr(-abs(outcome.change.value) / outcome.change.se))


def _stage(quantities: Quantities, reward: MetricSeries) -> str:
    """That the reward is lower from one row on, rises again and the policy did not jump, as a clause; else empty."""
    kl = distance(quantities)
    row = None if reward.shift is None else _fell_at_once(reward.values, reward.shift.start)
    if row is None or kl is None or at_once(kl.values) is not None or len(reward) - row < LEAST:
        return ""
    since = replace(reward, steps=reward.steps[row:], values=reward.values[row:], sampling=None)
    if since.curve.change().p_up > BEYOND:
        return ""
    step = int(reward.steps[row])
    there = [(at, value) for at, value in zip(kl.steps, kl.values, strict=True) if abs(at - step) <= AROUND]
    before, after = (
        float(np.median([value for at, value in there if (at >= step) == late] or [math.nan])) for late in (False, True)
    )
    if not after < TIMES * before:
        return ""
    return (
        f", from one row to the next at step {step:,}, and rises since; the policy did not jump there "
        f"({quantities.went(kl.name, before, after)})"
    )


def _fell_at_once(values: Array, near: int) -> int | None:
    """The row near `near` from which the values (n,) are lower, CLEAR spreads of the WINDOW rows on either side."""
    first = max(near - WINDOW, 0)
    row = at_once(values[first : near + WINDOW], -1, CLEAR)
    return None if row is None else first + row


FAULT = Fault(
    name="reward decline",
    rank=210,
    remedy="go back to the checkpoint before the onset and lower the learning rate",
    effect="either the prompts became harder or the policy became worse",
    beside="warning",
    log=LogTest(
        "reward decline",
        check,
        needs=("reward",),
        statistic="late − early and late − middle reward of a fitted curve with bends, late − early of a line if no "
        "bends are evident, and a drop between two levels; harmonic mean of the p-values",
        threshold="p < α",
    ),
)
