"""The late reward is below the early one, or below that of the middle of the run.

What it is
    The policy became worse at its prompts, or the prompts became harder.
How it shows
    A fitted curve, a line or a drop between two levels falls by more than slow random drift explains.
What it does to the gradient
    It does not say by itself; see what changed before the fall.
What to do
    Go back to the checkpoint before the onset and lower the learning rate; where it fell from one row to the next and
    what is sampled did not move, look at what grades.
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
from grposcope.core.text import listed, number
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

OF_GRADING = (
    "put completions from before and after that step to the reward function by hand: what is sampled did not move "
    "there, so the reward function, the answers that it compares with, its service, the prompts or the template did; a "
    "lower learning rate does not help"
)
"""What to do where the reward is lower from one row on and what is sampled stays as it was."""

DISTINCT = 4.0
"""Spreads by which rows on either side of a fall differ, where other metrics show what made it."""

RATHER = "rewards before and after that step do not compare, and what is learned since is another task"
"""What such a fall does."""

MOST = 0.7
"""Share of the fall up to the end of the run that a fall at once is, at least."""

UNMOVED, SPREADS, NOISE = 0.1, 2.0, 0.3
"""Change over the level, or in standard deviations of the rows on either side and then over the level, up to which a
metric did not move."""

FOLLOWS = ("starved", "dead after a fall", "held-out decline", "empty steps")
"""What a reward that is no longer given makes of a log."""

_OTHERS = "rewards before and after that step do not compare"
"""What it says where the prompts are others from a step on."""

BEYOND = 0.05
"""p-value below which a fall is more than wandering explains, as in the sentence on what was learned."""


def _check(quantities: Quantities) -> Finding:
    """Whether the reward fell: as a curve, as a line, or within a few rows."""
    reward = quantities.require("reward")
    at_one_step, of_reward = _at_one_step(quantities, reward), run_outcome.of_reward(quantities)
    because = f"the reward {at_one_step or fell(of_reward)}"
    if not at_one_step and of_reward.direction == "up":  # it fell on its way, and is higher than at first
        return measured(1.0, because, ends(reward))
    return _fall(quantities, reward, because)


def _fall(quantities: Quantities, reward: MetricSeries, because: str) -> Finding:
    """The fall that is most clear, told by `because`."""
    steady = without_outages(reward)
    curve, line = steady.curve, steady.line
    falls = [curve.change(), curve.change(MIDDLE), *([] if line is None else [line.change()])]
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
    grading = "" if stage else _graded_otherwise(quantities, reward)
    return measured(
        worst.p, worst.because + (untold or stage or grading), worst.evidence, missing=missing, grades=grades,
        brief=worst.because, begins=partial(onset.since, reward, -1),
        remedy=OF_A_STAGE if stage else OF_GRADING if grading else "", explains=FOLLOWS if grading else (),
        effect=_effect(stage, grading),
    )  # fmt: skip


def _effect(stage: str, grading: str) -> str:
    """What the fall may be of, where what is seen of its step says more than the fault does; else empty."""
    if grading:
        return RATHER
    return _OTHERS if "prompts are others" in stage else ""


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


def _graded_otherwise(quantities: Quantities, reward: MetricSeries) -> str:
    """That the reward is lower from one row on while two metrics or more of what is sampled, all that are logged of
    them, do not move there, as a clause; else empty."""
    row = None if reward.shift is None else _fell_at_once(reward.values, reward.shift.start, DISTINCT)
    sampled = [distance(quantities), quantities.get("entropy"), quantities.get("length")]
    logged = [series for series in sampled if series is not None]
    if row is None or len(logged) < 2 or not _is_most_of_the_fall(reward.values, row):
        return ""
    step = int(reward.steps[row])
    sides = [_on_both_sides(series, step) for series in logged]
    if not all(len(before) > 1 and len(after) > 1 and _stays(before, after) for before, after in sides):
        return ""
    said = listed([
        quantities.went(series.name, float(np.median(before)), float(np.median(after)))
        for series, (before, after) in zip(logged, sides, strict=True)
    ])  # fmt: skip
    return f"; it falls from one row to the next at step {step:,}, where what is sampled did not move ({said})"


def _is_most_of_the_fall(values: Array, row: int) -> bool:
    """Whether no other row near it falls as much, and the level of the last fifth is not much below that of the WINDOW
    rows after it."""
    first = max(row - WINDOW, 1)
    if first + int(np.argmin(np.diff(values[first - 1 : row + WINDOW]))) != row:
        return False
    before, after = float(np.median(values[max(row - WINDOW, 0) : row])), float(np.median(values[row : row + WINDOW]))
    return before - after > MOST * (before - float(np.median(values[-max(len(values) // 5, 1) :])))


def _on_both_sides(series: MetricSeries, step: int) -> tuple[Array, Array]:
    """The values of the AROUND steps before a step, and of as many from it on."""
    before = (series.steps < step) & (series.steps >= step - AROUND)
    after = (series.steps >= step) & (series.steps < step + AROUND)
    return series.values[before], series.values[after]


def _stays(before: Array, after: Array) -> bool:
    """Whether the levels on both sides are the same, to UNMOVED of the first, or to SPREADS of the rows and at most
    NOISE of it."""
    level = abs(float(np.median(before)))
    size = abs(float(np.median(after)) - float(np.median(before)))
    return size <= max(UNMOVED * level, min(SPREADS * float(max(before.std(), after.std())), NOISE * level))


def _at_one_step(quantities: Quantities, reward: MetricSeries) -> str:
    """From which level to which it falls at one step, where the prompts are others from there on or it rises again, as
    a verb phrase; else empty."""
    row = _row_of_fall(reward)
    if row is None or not (_other_prompts(quantities, reward.steps[row]) or _rises_since(reward, row)):
        return ""
    spans = (slice(max(row - WINDOW, 0), row), slice(row, row + WINDOW))
    before, after = (float(np.median(reward.values[span])) for span in spans)
    step, end = int(reward.steps[row]), reward.present.last.value
    return f"goes from {number(before)} to {number(after)} at step {step:,}, and is {number(end)} in the end"


def _row_of_fall(reward: MetricSeries) -> int | None:
    """The row from which the reward is lower at once, with as many rows behind it as show a rise; else None."""
    row = None if reward.shift is None else _fell_at_once(reward.values, reward.shift.start)
    return None if row is None or len(reward) - row < LEAST else row


def _rises_since(reward: MetricSeries, row: int) -> bool:
    """Whether the reward rises from a row on."""
    since = replace(reward, steps=reward.steps[row:], values=reward.values[row:], sampling=None)
    return since.curve.change().p_up <= BEYOND


def _other_prompts(quantities: Quantities, step: float) -> str:
    """That prompts have another length from this step on, as a clause; else empty."""
    prompts = quantities.column("prompt_length")
    row = None if prompts is None else at_once(prompts.values)
    if prompts is None or row is None or prompts.steps[row] != step:
        return ""
    before, after = (float(np.median(rows)) for rows in (prompts.values[:row], prompts.values[row:]))
    return f"; {quantities.went(prompts.name, before, after)} from that step on: the prompts are others"


def _stage(quantities: Quantities, reward: MetricSeries) -> str:
    """That the reward is lower from one row on where the prompts are others, or rises again and the policy did not
    jump, as a clause; else empty."""
    kl, row = distance(quantities), _row_of_fall(reward)
    if row is None:
        return ""
    if others := _other_prompts(quantities, reward.steps[row]):
        return others
    if kl is None or at_once(kl.values) is not None or not _rises_since(reward, row):
        return ""
    step = int(reward.steps[row])
    there = [(at, value) for at, value in zip(kl.steps, kl.values, strict=True) if abs(at - step) <= AROUND]
    before, after = (
        float(np.median([value for at, value in there if (at >= step) == late] or [math.nan])) for late in (False, True)
    )
    if not after < TIMES * before:
        return ""
    return f", having risen since; the policy did not jump there ({quantities.went(kl.name, before, after)})"


def _fell_at_once(values: Array, near: int, clear: float = CLEAR) -> int | None:
    """The row near `near` from which the values (n,) are lower, `clear` spreads of the WINDOW rows on either side."""
    first = max(near - WINDOW, 0)
    row = at_once(values[first : near + WINDOW], -1, clear)
    return None if row is None else first + row


FAULT = Fault(
    name="reward decline",
    rank=210,
    remedy="go back to the checkpoint before the onset and lower the learning rate",
    effect="either the prompts became harder or the policy became worse",
    beside="warning",
    log=LogTest(
        "reward decline",
        _check,
        needs=("reward",),
        statistic="late − early and late − middle reward of a fitted curve with bends, late − early of a line if no "
        "bends are evident, and a drop between two levels; harmonic mean of the p-values",
        threshold="p < α",
    ),
)
