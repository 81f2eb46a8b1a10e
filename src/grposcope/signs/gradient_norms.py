"""Gradient spikes and gradient explosion: norms far above their running median, or far larger late than early."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, stdtr

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Interval, Sign, cannot_tell, fact, measured
from grposcope.core.text import apart, number
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.maths.timeseries.noise import Array
from grposcope.maths.timeseries.onset import at_once
from grposcope.maths.timeseries.running_median import running_median
from grposcope.signs import onset
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities

GROWN = 5.0
"""Late over early gradient norm that is an explosion."""

SPIKE = 5.0
"""A spike is at least this multiple of the running median."""

DEAD = 0.02
"""Share of the upper quartile of gradient norms below which a step had none to speak of."""

WINDOW = 31
"""Rows of the running median."""

LASTING = 7
"""Rows of a shorter one: where most of so many are high, that is a level and no spike."""

BOUNDED = ("verl", "openrlhf", "skyrl", "slime", "roll", "areal")
"""Engines in which the ratio may be bounded from above by a dual clip of their own, by default or often."""

OFF_POLICY = 1e-4
"""Share of tokens clipped, at the median of the rows, above which batches are used for several updates: at the first
update every ratio is 1, and none is."""

UNBOUNDED = "unbounded ratio"
"""The fault of spikes that several updates on a batch make."""

TWO_SIDED = (
    "bound the ratio where the advantage is negative: delta = 2 or so (TRL, above 1 + epsilon), clip_ratio_c = 3 "
    "(verl), or take fewer updates on a batch"
)

UNSCALED = "accumulation not scaled"
"""The fault of a gradient that is many times too large from the first row on."""

LARGE, EARLIEST = 100.0, 5
"""Median norm of the first EARLIEST rows from which on it is that of a sum: those of 45 public logs of means over
tokens are below 15."""

OF_SUMS = (
    "compute the norm of one batch with one process a sequence (context and sequence parallel 1) and without "
    "accumulation: where it is as many times smaller, the loss is not divided by tokens, passes or processes; until "
    "then max_grad_norm sets the length of every step"
)
"""What to do about such a norm."""

_OF_A_SCALE = (
    "see what changed at that step (a resume with other numbers of passes of accumulation, processes or micro-batches, "
    "or another version), and divide the loss of each pass by their number; under Adam a larger scale changes steps "
    "only through the clip of the norm (max_grad_norm), so that lowering the learning rate is no cure"
)
"""What to do about a loss that is scaled otherwise from a step on."""

_STEPPED, _NEAR, _ALIKE = 3.0, 60, 1.6
"""Spreads by which log norms go to another level at once; rows on either side that are compared; and how far apart the
factors of norm and loss may be."""

JUST_BEFORE = 3
"""Rows before a fall within which a spike may have begun it."""

_FEW, _APART = 5, 3.0
"""Rows on either side of a step from which the norms are larger, at least, where few are logged; and how many times the
largest before it the smallest behind it is."""

_BESIDE = 10
"""Rows of the reward on either side of a step that are compared."""

_FALLS = ("reward decline", "held-out decline")
"""Modes that may follow from norms that are larger from a step on."""

_OF_A_LOST_POLICY = (
    "reward decline", "held-out decline", "kl blow-up", "entropy explosion", "length", "constant reward", "starved",
    "dead after a fall", "empty steps", "never paid",
)  # fmt: skip
"""Modes that may follow from a spike where the reward falls just after it."""

_SMALLER_STEPS = "go back to the checkpoint before the onset and lower the learning rate"
"""What to do where the reward falls just after a spike."""

_OF_A_JUMP = (
    "see whether the run was resumed at that step, and whether the optimiser's state was saved and restored with the "
    "weights: resume from a checkpoint that has it, or else with a warm-up and a lower learning rate; where it was not "
    "resumed, look at the batch of that step"
)
"""What to do about a norm that jumps where the reward falls."""

_TOGETHER, _AMONG, _LARGER = 0.8, 5, 3.0
"""Share of the spikes, and least number of them, in whose rows the mismatch is so many times its median in others."""

_OF_OTHER_NUMERICS = (
    "find the tokens of such a row that sampler and trainer price differently, and leave them out of the loss or cap "
    "their ratio (truncated importance sampling, masks): in mixtures of experts replay the sampler's routing in the "
    "trainer; else give both the same precision and kernels"
)
"""What to do where the spikes are in the rows of a large mismatch."""

TAILS = 5
"""Degrees of freedom of Student's t that log gradient norms are judged by: heavier tails than normal."""


def _check(quantities: Quantities) -> Finding:
    """Spikes of the gradient norm above its running median, or a late norm above GROWN × the early one."""
    norm = quantities.require("grad_norm", SHORT)
    if len(norm) < LEAST:
        return _of_few(quantities, norm)
    living = live(norm.values) | _of_live_groups(quantities, norm)
    if living.sum() < LEAST:
        return cannot_tell("the gradient norm is 0 on nearly all rows")
    p, multiples, rows = _spikes(norm.values[living])
    steps = norm.steps[living][rows]
    logs = MetricSeries(norm.name, norm.steps[living], np.log(norm.values[living]))
    early, late = (math.exp(logs.level(span).value) for span in (EARLY, LATE))
    growth = logs.change(EARLY, LATE, minus=math.log(GROWN))
    window = quantities.run.window
    limit = f"each row is the mean of {window} steps, which hides spikes" if window > 1 else f"counts from {SPIKE:g} ×"
    largest = float(multiples[0]) if len(multiples) else 1.0
    evidence = (
        Sign("largest gradient norm over its running median", largest, limit=limit, column=norm.name),
        Sign("spikes", float(len(multiples)), column=norm.name),
        Sign(f"grad_norm, last {1 - LATE[0]:.0%} over first {EARLY[1]:.0%}",
                 late / early, limit=f"explosion from {GROWN:g} ×", column=norm.name),
    )  # fmt: skip
    if growth.p_up < min(p, 0.25) and (scaled := _scaled(quantities, norm)) is not None:
        return scaled
    if growth.p_up < min(p, 0.25):
        because = f"the gradient norm grew from {early:.3g} to {late:.3g}"
        return measured(
            min(1.0, 2 * growth.p_up), because, evidence, "gradient explosion", explains=("kl blow-up", *_FALLS),
            brief=quantities.went(norm.name, early, late), begins=partial(onset.since, logs, 1),
        )  # fmt: skip
    p = min(1.0, 2 * p)
    first = float(np.median(norm.values[:EARLIEST]))
    if p >= 0.5 and min(first, late) >= LARGE:
        key = quantities.key(norm.name)
        because = (
            f"{key} is {number(first)} in the median of the first rows and stays there, where a loss that is a mean "
            "over tokens has one near 1: so it is where terms are added up that should be averaged (tokens, passes of "
            "accumulation, processes of context parallel), or where another precision or backend scales gradients"
        )
        sign = Sign(f"{norm.name}, median of the first {EARLIEST} rows", first, limit=f"counts from {LARGE:g}")
        return fact(True, because, (sign, *evidence), fault=UNSCALED, remedy=OF_SUMS, grades=("note", "note"),
                    brief=f"{key} is {number(first)} from the first row on")  # fmt: skip
    if p >= 0.5 and (jump := _jump_at_a_fall(quantities, norm)) is not None:
        return jump
    if p >= 0.5:
        return measured(p, "no two gradient norms stand out of their running median by more than its noise", evidence)
    count = len(multiples)
    because = (
        f"the gradient norm has {count} spikes, the largest {largest:.3g} × the running median of steps with a gradient"
    )
    when = Interval(int(steps.min()), told="first at") if len(steps) else None
    fall = _began_a_fall(quantities, steps)
    explains: tuple[str, ...] = ()
    if fall is not None:
        because, explains = f"{because}; the reward falls {fall}, just after one of them", _OF_A_LOST_POLICY
    brief = f"{count} spikes in {quantities.key(norm.name)}, up to {largest:.2g} × its median"
    if priced := _where_the_mismatch_is_large(quantities, steps):
        remedy = _OF_OTHER_NUMERICS + ("; go back to the checkpoint before the onset" if fall is not None else "")
        return measured(p, because + priced, evidence, brief=brief, since=when, explains=explains, remedy=remedy)
    if (clipped := _off_policy(quantities)) is not None:
        because += (
            f", beside {quantities.key(clipped.name)} at {clipped.values.mean():.2g}, so that batches are used for "
            "several updates: where the advantage is negative their ratio has no upper bound"
        )
        brief = f"{count} spikes in {quantities.key(norm.name)}, with several updates a batch"
        remedy = f"{TWO_SIDED}; {_SMALLER_STEPS}" if fall is not None else ""
        return measured(p, because, evidence, UNBOUNDED, brief=brief, since=when, explains=explains, remedy=remedy)
    remedy = f"{_SMALLER_STEPS}, and see that the gradient is clipped (max_grad_norm)" if fall is not None else ""
    return measured(p, because, evidence, brief=brief, since=when, explains=explains, remedy=remedy)


def _where_the_mismatch_is_large(quantities: Quantities, steps: Array) -> str:
    """That the mismatch is _LARGER × what it is in other rows in _TOGETHER of the rows of these steps, as a clause;
    empty where it is not, or is not logged."""
    sizes = quantities.get("mismatch", LEAST)
    if sizes is None or sizes.values.min() < 0:
        return ""
    less = 1.0 if sizes.name == "mismatch/mult_error" else 0.0
    there = np.isin(sizes.steps, steps)
    inside, outside = sizes.values[there] - less, sizes.values[~there] - less
    if len(inside) < _AMONG or not len(outside) or not np.median(outside) > 0:
        return ""
    if (inside > _LARGER * np.median(outside)).mean() < _TOGETHER:
        return ""
    low, high = apart(float(np.median(outside)) + less, float(np.median(inside)) + less)
    return f"; {quantities.key(sizes.name)} is {high} in their rows and {low} in others, so that it goes with them"


def _scaled(quantities: Quantities, norm: MetricSeries) -> Finding | None:
    """That norm and loss are larger by one factor from one step on, at which nothing of what is sampled moves; None
    where it is not so."""
    logs, loss = np.log(np.maximum(norm.values, 1e-300)), quantities.get("loss", LEAST)
    row = at_once(logs, 1, clear=_STEPPED)
    if row is None or loss is None or min(row, len(norm) - row) < WINDOW // 2:
        return None
    step = int(norm.steps[row])
    sides = [(series.values[(series.steps >= step - _NEAR) & (series.steps < step)],
              series.values[(series.steps >= step) & (series.steps < step + _NEAR)])
             for series in (norm, loss)]  # fmt: skip
    if min(len(rows) for side in sides for rows in side) < SHORT:
        return None
    factor, of_loss = (float(np.median(np.abs(b)) / max(float(np.median(np.abs(a))), 1e-300)) for a, b in sides)
    if not 1 / _ALIKE < of_loss / factor < _ALIKE:
        return None
    sampled = [
        series for name in ("reward", "entropy", "length") if (series := quantities.get(name, LEAST)) is not None
    ]
    jumps = [(series.steps, at_once(series.values, clear=_STEPPED)) for series in sampled]
    if len(sampled) < 2 or any(jump is not None and abs(steps[jump] - step) <= JUST_BEFORE for steps, jump in jumps):
        return None
    key, (before, after) = quantities.key(norm.name), (float(np.median(rows)) for rows in sides[0])
    because = (
        f"{key} goes from {number(before)} to {number(after)} at step {step:,} (medians of up to {_NEAR} rows), the "
        "size of the loss goes up there by about the same factor, and what is sampled does not move there: the loss "
        "is scaled otherwise since, as where passes of accumulation, processes or tokens are added up once averaged"
    )
    evidence = (Sign("gradient norm from that step on over that before it", factor, column=norm.name),
                Sign("size of the loss likewise", of_loss, limit="as much", column=loss.name))  # fmt: skip
    return fact(True, because, evidence, step, fault=UNSCALED, remedy=_OF_A_SCALE, grades=("warning", "warning"),
                brief=f"{key} {number(before)} → {number(after)} at step {step:,}, and the loss with it")  # fmt: skip


def _of_few(quantities: Quantities, norm: MetricSeries) -> Finding:
    """An explosion of norms that are logged on few rows: all from one row on are _APART × all before or more.

    The p-value is that of one order of all rows, times the rows at which it may begin.
    """
    places = range(_FEW, len(norm) - _FEW + 1)
    splits = [k for k in places if norm.values[k:].min() >= _APART * norm.values[:k].max() > 0]
    row = splits[0] if splits else 0
    before, after = (float(np.median(rows)) if splits else 0.0 for rows in (norm.values[:row], norm.values[row:]))
    if not splits or after < GROWN * before:
        return cannot_tell(quantities.absence("grad_norm", LEAST), "grad_norm")
    step, key = int(norm.steps[row]), quantities.key(norm.name)
    because = (
        f"{key} is {number(before)} in the median of the {row} rows before step {step:,} and {number(after)} in that "
        f"of the {len(norm) - row} rows from there on"
    )
    evidence = (Sign("gradient norm after that step over that before it", after / before,
                     limit=f"explosion from {GROWN:g} ×", column=norm.name),)  # fmt: skip
    p = min(1.0, len(norm) / math.comb(len(norm), row))
    return measured(p, because, evidence, "gradient explosion", since=Interval(step), explains=_FALLS,
                    brief=quantities.went(norm.name, before, after))  # fmt: skip


def _jump_at_a_fall(quantities: Quantities, norm: MetricSeries) -> Finding | None:
    """That the largest norm is SPIKE × that of the WINDOW rows before it and twice all of these, at a step at which the
    reward falls from one row to the next; None where it is not so.

    The reward falls where all of the _BESIDE rows before are above all of those behind; the p-value is that of one
    order of them, times the places looked at.
    """
    row = int(np.argmax(norm.values))
    before, reward = norm.values[max(row - WINDOW, 0) : row], quantities.get("reward", LEAST)
    if row < LASTING or reward is None or len(reward) < LEAST:
        return None
    usual, largest, step = float(np.median(before)), float(norm.values[row]), int(norm.steps[row])
    if largest < max(SPIKE * usual, 2 * before.max()) or not usual > 0:
        return None
    near = np.flatnonzero(np.abs(reward.steps - step) <= JUST_BEFORE * quantities.run.window)
    spans = [(reward.values[at - _BESIDE : at], reward.values[at : at + _BESIDE]) for at in near.tolist()
             if _BESIDE <= at <= len(reward) - _BESIDE]  # fmt: skip
    apart = [span for span in spans if span[0].min() > span[1].max()]
    if not apart:
        return None
    high, low = (float(np.median(rows)) for rows in max(apart, key=lambda span: span[0].min() - span[1].max()))
    key = quantities.key(norm.name)
    because = (
        f"{key} jumps from {number(usual)} to {number(largest)} at step {step:,}, where the reward falls from "
        f"{number(high)} to {number(low)} (medians of {_BESIDE} rows): so it is where the optimiser starts "
        "without its moments, as after a resume that did not restore its state, or where other data or rewards begin"
    )
    evidence = (Sign("largest gradient norm over those before it", largest / usual, limit=f"counts from {SPIKE:g} ×",
                     column=norm.name),)  # fmt: skip
    p = min(1.0, len(spans) / math.comb(2 * _BESIDE, _BESIDE))
    return measured(p, because, evidence, since=Interval(step, told="at"), explains=_FALLS, remedy=_OF_A_JUMP,
                    grades=("warning", "warning"),
                    brief=f"{key} {number(usual)} → {number(largest)} where the reward falls")  # fmt: skip


def _began_a_fall(quantities: Quantities, steps: Array) -> Interval | None:
    """Since when the reward falls, where a spike at one of these steps lies in that interval or just before it."""
    reward = quantities.get("reward", LEAST)
    fall = None if reward is None else onset.since(reward, -1, shown=False)
    if fall is None:
        return None
    just_before = JUST_BEFORE * quantities.run.window
    return fall if ((steps >= fall.first - just_before) & (steps <= fall.last)).any() else None


def _off_policy(quantities: Quantities) -> MetricSeries | None:
    """The share of tokens clipped where it shows several updates on a batch, and no dual clip bounds the ratio."""
    clipped = quantities.get("clip", LEAST)
    if clipped is None or quantities.run.meta.engine in BOUNDED or quantities.column("clip_dual") is not None:
        return None
    return clipped if np.median(clipped.values) > OFF_POLICY else None


def live(norms: Array) -> NDArray[np.bool_]:
    """Which steps of gradient norms (n,) had a gradient: those of dead groups alone have none, or next to none beside
    the upper quartile."""
    positive = norms > 0
    usual = float(np.quantile(norms[positive], 0.75)) if positive.any() else 0.0
    return np.asarray(norms > DEAD * usual)


def _of_live_groups(quantities: Quantities, norm: MetricSeries) -> NDArray[np.bool_]:
    """Which norms (n,) above 0 are of steps whose groups are logged to be mostly alive, however small beside later."""
    dead = quantities.dead_fraction
    if dead is None or quantities.dead_fraction_is_bound or dead.values.max() > 1:
        return np.zeros(len(norm), bool)
    share = np.interp(norm.steps, dead.steps, dead.values)
    return np.asarray((norm.values > 0) & (share < _ALIVE))


_ALIVE = 0.5
"""Share of dead groups below which a step has a gradient."""

_MOST = 700.0
"""Logarithm of the largest multiple that a float holds."""


def _spikes(norms: Array) -> tuple[float, Array, np.ndarray]:
    """P-value of the second largest deviation of log norms, the spikes' multiples (largest first), and their rows.

    Two spikes are needed, since one odd batch in a run is chance: P(at least 2 of n exceed z) under Student's t.
    """
    logs = np.log(norms)
    deviation = logs - np.maximum(_running_median(logs, WINDOW), _running_median(logs, LASTING))
    scale = max(1.4826 * float(np.median(np.abs(deviation))), 1e-3)
    order = np.argsort(-deviation)
    if deviation[order[1]] < math.log(SPIKE):
        return 1.0, np.empty(0), np.empty(0, np.int64)
    tail = stdtr(TAILS, -deviation[order] / scale)
    p = float(betainc(2, len(logs) - 1, tail[1]))  # of the binomial distribution
    rows = order[(deviation[order] > math.log(SPIKE)) & (tail <= max(tail[1], 1e-4))]
    return p, np.exp(np.minimum(deviation[rows], _MOST)), rows


def _running_median(logs: Array, window: int) -> Array:
    """Median of `window` rows around each; towards the ends of the first and the last so many, without padding."""
    n, half = len(logs), min(window, len(logs)) // 2
    middle = running_median(logs, min(window, n), mirrored=False)
    middle[:half], middle[n - half :] = np.median(logs[: 2 * half + 1]), np.median(logs[max(n - 2 * half - 1, 0) :])
    return np.asarray(middle)


TEST = LogTest(
    "gradient spikes",
    _check,
    needs=("grad_norm",),
    statistic=f"second largest log norm of live steps above the running median of {WINDOW} rows in robust σ; late − ρ "
    "× early norm",
    threshold=f"P(2 of n exceed it under Student's t, {TAILS} df) and {SPIKE:g} ×, growing with log n; explosion "
    f"{GROWN:g} ×; or a median of {LARGE:g} in the first rows, a fact",
)
