"""The reward is lost for a few steps, at one interval or with other completions, and is back.

Asked as
    reward drops to 0 after every validation
What it is
    What draws or grades the rollouts was another for these steps: a sampler that woke without its weights, the first
    steps after a resume, a grader or tool that was down.
How it shows
    Single rows, or a few, far below their neighbours; every so many steps, as evaluations and checkpoints come; or with
    completions of another length, a larger mismatch between sampler and trainer, or a longer time of the step, in the
    same rows; or with exactly one reward in several rows on end.
What it does to the gradient
    These steps train on text that the policy did not write; where all rewards are 0 they only cost time.
What to do
    Find what happens right before such a step; compare the sampler's weights with the trainer's.
What decides
    One completion of such a step beside one of the step before it.
Sources
    NeMo-RL #1443: https://github.com/NVIDIA-NeMo/RL/issues/1443
    slime #1695: https://github.com/THUDM/slime/issues/1695
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Grade, Sign, fact
from grposcope.core.text import apart, listed, number
from grposcope.signs.outages import CLEAR, DEEP, TIMES, outages
from grposcope.signs.quantities import LEAST, NO_SPREAD, MetricSeries, Quantities

OTHER_LENGTH, OTHER_MISMATCH = 1.5, 3.0
"""Factors by which the lengths or the mismatch of lost rows differ from those around them, at least."""

FOLLOWS = (
    "reward decline", "held-out decline", "length", "oscillation", "growing oscillation", "starved", "empty steps",
    "constant reward", "sampler mismatch", "wrong weights at the sampler", "answers shorten", "reward hacking",
)  # fmt: skip

BY_THE_CLOCK = (
    "find what happens right before such a step (an evaluation, a checkpoint, a sampler that sleeps or wakes), leave "
    "it out for one interval, and read a completion of such a step: where it is junk, the sampler's weights or cache "
    "were not restored (the deeper sleep of vLLM drops the weights, which have to be sent again)"
)
"""What to do where the outages come at one interval."""

OF_THE_SAMPLER = (
    "compare a checksum of the sampler's weights with the trainer's at such a step (after a resume or a wake-up they "
    "have to be sent before the first rollout), and leave those rollouts out"
)
"""What to do where the sampler was another policy in those rows."""


_OF_THE_GRADER = (
    "look into the logs of the grader, of its tools and of the environment at these steps (time-outs, a server that "
    "was down, a full disk), and have a rollout that could not be graded left out or drawn again"
)
"""What to do where all rewards of several rows on end are one value and completions are as they were, or where lost
rows took longer."""

_SECONDS = "seconds_step"

_ON_END = 5
"""Rows on end of one mean reward without a spread, at least."""


def _check(quantities: Quantities) -> Finding:
    """Rows whose reward is lost, at one interval, or with other completions or another sampler, or at one exact value
    in several rows on end."""
    reward = quantities.require("reward", LEAST)
    found = outages(reward.values)
    if found is None:
        return _at_one_reward(quantities, reward) or fact(False, "no reward is lost for a few steps")
    first = int(reward.steps[found.starts[0]])
    low, usual = apart(found.lost, found.around)
    subject = f"the reward is {low} on {int(found.rows.sum())} of {len(reward)} rows, from step {first:,} on,"
    because = f"{subject} and {usual} on those around them"
    evidence = [
        Sign("reward of the lost rows, median", found.lost, column=reward.name),
        Sign("reward of the rows around them, median", found.around, column=reward.name),
    ]
    lost, sides = reward.steps[found.rows], reward.steps[found.sides]
    beside = [(series, *_levels(series, lost, sides)) for series in _of_what_is_sampled(quantities)]
    differ = [one for one in beside if _differs(*one)]
    stretches = found.stretches
    if not found.every and not differ and not stretches:
        return fact(False, f"{subject} with nothing else changed in them, at no interval", evidence)
    grades: tuple[Grade, Grade] = ("warning", "failing" if found.every else "warning")
    brief = f"reward {usual} → {low} on {int(found.rows.sum())} rows"
    if found.every:
        because, brief = f"{because}, every {found.every} rows", f"{brief}, every {found.every}"
    for series, inside, outside in differ:
        said = " → ".join(apart(outside, inside))
        because = f"{because}; {quantities.key(series.name)} goes {said} there"
        evidence.append(Sign(f"{series.name} of the lost rows, median", inside, column=series.name))
    if stretches and not differ:
        where = listed([f"{int(reward.steps[a]):,} to {int(reward.steps[b - 1]):,}" for a, b in stretches[:4]])
        more = f" and {len(stretches) - 4} more" if len(stretches) > 4 else ""
        because = (
            f"{because}; it is exactly that in all rows of the steps {where}{more}, as where nothing can be graded"
        )
    of_sampler = any(series.name.startswith("mismatch/") for series, *_ in differ)
    remedy = OF_THE_SAMPLER if of_sampler and not found.every else BY_THE_CLOCK
    took_longer = any(series.name == _SECONDS and inside > outside for series, inside, outside in differ)
    if not found.every and not of_sampler and (took_longer or (stretches and not differ)):
        remedy = _OF_THE_GRADER
    return fact(
        True, because, evidence, first, brief=brief, grades=grades, remedy=remedy,
        explains=FOLLOWS,
    )  # fmt: skip


def _at_one_reward(quantities: Quantities, reward: MetricSeries) -> Finding | None:
    """That the mean reward of _ON_END rows or more on end is one value without a spread, within a run of other rows
    whose rewards differ; None where there are no such rows, or where no spread is logged."""
    spreads = (quantities.column(f"reward_std{which}") for which in ("", "_batch", "_unclear"))
    spread = next((series for series in spreads if series is not None and len(series) == len(reward)), None)
    if spread is None or len(np.unique(reward.values)) < len(reward) / 2:
        return None
    equal = (spread.values < NO_SPREAD) & np.append(False, reward.values[1:] == reward.values[:-1])
    first = int(np.argmax(equal)) - 1
    count = int(np.argmin(np.append(equal[first + 1 :], False))) + 1
    value = float(reward.values[first])
    if not equal.any() or count < _ON_END or equal.sum() != count - 1 or value in (quantities.reward_range or ()):
        return None
    step, last = (int(reward.steps[row]) for row in (first, first + count - 1))
    because = (
        f"the mean reward is exactly {number(value)} and rewards of a group do not differ in all {count} rows from "
        f"step {step:,} to {last:,}, as where what grades is down and one value stands in for a grade"
    )
    evidence = (Sign("rows on end of one reward", float(count), limit=f"counts from {_ON_END}"),)
    return fact(True, because, evidence, step, remedy=_OF_THE_GRADER, grades=("warning", "warning"),
                brief=f"one reward of {number(value)} in {count} rows from step {step:,} on",
                explains=("constant reward", "starved"))  # fmt: skip


def _of_what_is_sampled(quantities: Quantities) -> list[MetricSeries]:
    """What is logged of completions, of the sampler and of the clock: lengths, each mismatch, the time of a step."""
    names = ["length", _SECONDS, *(name for name in quantities.run.table if name.startswith("mismatch/"))]
    return [series for name in names if (series := quantities.column(name)) is not None and len(series) >= LEAST]


def _levels(series: MetricSeries, lost: NDArray[np.float64], sides: NDArray[np.float64]) -> tuple[float, float]:
    """The median of a metric at the lost steps, and at those on either side of them; NaN where it has none."""
    of_lost, of_sides = (series.values[np.isin(series.steps, steps)] for steps in (lost, sides))
    if not len(of_lost) or not len(of_sides):
        return math.nan, math.nan
    return float(np.median(of_lost)), float(np.median(of_sides))


def _differs(series: MetricSeries, inside: float, outside: float) -> bool:
    """Whether a metric is another in the lost rows than beside them: longer, shorter, or a larger mismatch."""
    if not min(inside, outside) > 0:
        return False
    if series.name.startswith("mismatch/"):
        less = 1.0 if series.name == "mismatch/mult_error" else 0.0
        return inside - less > OTHER_MISMATCH * max(outside - less, 0.0)
    return not 1 / OTHER_LENGTH <= inside / outside <= OTHER_LENGTH


FAULT = Fault(
    name="outage",
    rank=8.8,
    remedy=BY_THE_CLOCK,
    effect="these steps train on what the policy did not write, or on nothing",
    beside="warning",
    log=LogTest(
        "outage",
        _check,
        needs=("reward",),
        statistic="rows whose reward is far below its running median, the interval between them, and the length, "
        "the mismatch and the time of the same rows",
        threshold=f"{CLEAR:g} spreads and {DEEP:g} of the median; {TIMES} or more at one interval, or {TIMES} on end "
        "of exactly one reward, or lengths or times "
        f"{OTHER_LENGTH:g} × or a mismatch {OTHER_MISMATCH:g} × those of the rows beside",
    ),
)
