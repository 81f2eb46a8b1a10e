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
from grposcope.core.metrics import VARIANTS
from grposcope.core.text import number, visible
from grposcope.maths.timeseries.noise import Array
from grposcope.maths.timeseries.onset import CLEAR, at_once
from grposcope.signs import onset, run_outcome
from grposcope.signs.jumps import WINDOW, jump, unmoved
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

_OF_ENVIRONMENTS = (
    "balance the environments: draw more prompts of {0}, normalise advantages within each, and see whether its answers "
    "changed form with the others' (read late completions of it); choose checkpoints by a score of each"
)
"""What to do where one environment is lost for another."""

DISTINCT = 4.0
"""Spreads by which rows on either side of a fall differ, where other metrics show what made it."""

_SCALED = 1.5
"""Factor by which the spread of rewards differs where they are on another scale."""

_SHOWN = 2.5
"""Spreads of a jump, where another test shows the fall."""

RATHER = "rewards before and after that step do not compare, and what is learned since is another task"
"""What such a fall does."""

MOST = 0.7
"""Share of the fall up to the end of the run that a fall at once is, at least."""

FOLLOWS = ("starved", "dead after a fall", "held-out decline", "empty steps")
"""What a reward that is no longer given makes of a log."""

_OTHERS = "rewards before and after that step do not compare"
"""What it says where the prompts are others from a step on, or the policy did not jump there."""

BEYOND = 0.05
"""p-value below which a fall is more than wandering explains, as in the sentence on what was learned."""


def _check(quantities: Quantities) -> Finding:
    """Whether the reward fell: as a curve, as a line, or within a few rows."""
    reward = quantities.require("reward")
    if (traded := _of_environments(quantities)) is not None:
        return traded
    at_one_step, of_reward = _at_one_step(quantities, reward), run_outcome.of_reward(quantities)
    because = f"the reward {at_one_step or fell(of_reward)}"
    if not at_one_step and of_reward.direction == "up":  # it fell on its way, and is higher than at first
        return measured(1.0, because, ends(reward))
    return _fall(quantities, reward, because)


def _of_environments(quantities: Quantities) -> Finding | None:
    """That the reward of an environment falls while that of another rises; None where it is not so, or none is apart.

    The p-value is that of the clearest fall, times the number of environments.
    """
    run = quantities.run
    parts = {} if run.in_turn else {name: Quantities(scope) for name, scope in run.scopes.items()}
    seen = {name: run_outcome.of_reward(part) for name, part in parts.items() if part.get("reward") is not None}
    rises = [name for name, outcome in seen.items() if outcome.direction == "up"]
    falls = {name: _fall(parts[name], parts[name].require("reward"), fell(outcome))
             for name, outcome in seen.items() if outcome.direction == "down"}  # fmt: skip
    if not rises or not falls:
        return None
    name = min(falls, key=lambda each: falls[each].p)
    because = f"the reward of {visible(name, 40)} {fell(seen[name])} while that of {visible(rises[0], 40)} "
    because += fell(seen[rises[0]])
    remedy = _OF_ENVIRONMENTS.format(visible(name, 40))
    brief = f"reward of {visible(name, 20)} down, of {visible(rises[0], 20)} up"
    return replace(falls[name], p=min(1.0, len(seen) * falls[name].p), because=because, brief=brief, remedy=remedy,
                   effect="", grades=("warning", "failing"), explains=("no learning",))  # fmt: skip


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
    return _OTHERS if stage else ""


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
    row = _fell_at_once(reward, DISTINCT)
    if row is None or not _is_most_of_the_fall(reward.values, row):
        return ""
    step = int(reward.steps[row])
    said = unmoved(quantities, step)
    return said and f"; it falls from one row to the next at step {step:,}, where what is sampled did not move ({said})"


def _is_most_of_the_fall(values: Array, row: int) -> bool:
    """Whether no other row near it falls as much, and the level of the last fifth is not much below that of the WINDOW
    rows after it."""
    first = max(row - WINDOW, 1)
    if first + int(np.argmin(np.diff(values[first - 1 : row + WINDOW]))) != row:
        return False
    before, after = float(np.median(values[max(row - WINDOW, 0) : row])), float(np.median(values[row : row + WINDOW]))
    return before - after > MOST * (before - float(np.median(values[-max(len(values) // 5, 1) :])))


def _at_one_step(quantities: Quantities, reward: MetricSeries) -> str:
    """From which level to which it falls at one step, where the prompts are others from there on or it rises again, as
    a verb phrase; else empty."""
    row = _row_of_fall(reward)
    if row is None or not (_other_prompts(quantities, reward.steps[row]) or _other_scale(quantities, reward.steps[row])
                           or _rises_since(reward, row)):  # fmt: skip
        return ""
    spans = (slice(max(row - WINDOW, 0), row), slice(row, row + WINDOW))
    before, after = (float(np.median(reward.values[span])) for span in spans)
    step, end = int(reward.steps[row]), reward.present.last.value
    return f"goes from {number(before)} to {number(after)} at step {step:,}, and is {number(end)} in the end"


def _row_of_fall(reward: MetricSeries) -> int | None:
    """The row from which the reward is lower at once, with as many rows behind it as show a rise; else None."""
    row = _fell_at_once(reward)
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


def _other_scale(quantities: Quantities, step: float) -> str:
    """That the least or largest reward, or the spread, is another from this step on, as a clause; else empty."""
    for name in ("reward_min", "reward_max", *VARIANTS["reward_std"]):
        series = quantities.column(name)
        row = None if series is None else int(np.searchsorted(series.steps, step))
        if series is None or row is None or not WINDOW <= row <= len(series) - WINDOW:
            continue
        sides = series.values[row - WINDOW : row], series.values[row : row + WINDOW]
        before, after = (float(np.median(side)) for side in sides)
        still = not any(np.ptp(side) for side in sides) if name in ("reward_min", "reward_max") else (
            max(before, after) >= _SCALED * min(before, after) > 0 and (sides[0].max() < sides[1].min() or
                                                                        sides[1].max() < sides[0].min())
        )  # fmt: skip
        if still and before != after:
            return f"; {quantities.went(series.name, before, after)} from that step on: rewards are on another scale"
    return ""


def _stage(quantities: Quantities, reward: MetricSeries) -> str:
    """That the reward is lower from one row on where the prompts are others, or rises again and the policy did not
    jump, as a clause; else empty."""
    kl, row = distance(quantities), _row_of_fall(reward)
    if row is None:
        return ""
    if others := _other_prompts(quantities, reward.steps[row]) or _other_scale(quantities, reward.steps[row]):
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


def _fell_at_once(reward: MetricSeries, clear: float = CLEAR) -> int | None:
    """The row near the likeliest shift from which the reward is lower, `clear` spreads of the WINDOW rows on either
    side; else that of its largest jump down."""
    if reward.shift is None:
        return None
    first = max(reward.shift.start - WINDOW, 0)
    row = at_once(reward.values[first : reward.shift.start + WINDOW], -1, clear)
    return jump(reward.values, -1, _SHOWN) if row is None else first + row


FAULT = Fault(
    name="reward decline",
    rank=210,
    remedy="go back to the checkpoint before the onset and lower the learning rate",
    effect="either the prompts became harder, or the policy became worse, or what grades them is another",
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
