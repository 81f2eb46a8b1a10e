"""What a log shows of rollouts with turns: how many turns and calls, which calls failed, and what ended the rollouts.

All look at metrics `agent/…`, which few runs log. A level or a change of a level is a fact that only the noise of the
rows blurs, so they are tested by `maths.timeseries.level`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import stdtr

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact, measured
from grposcope.core.text import apart, apart_shares, number, percent
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import EARLY, FIRST, LATE
from grposcope.signs import onset, run_outcome
from grposcope.signs.mismatch import straight, two_levels
from grposcope.signs.quantities import SHORT, MetricSeries, Quantities
from grposcope.signs.tests import any_of, early_level, late_level, went
from grposcope.signs.thresholds import RISES

UNCALLED = "no calls"
"""The fault of a policy that has tools and calls none."""

COLLAPSED = 0.25
"""Late over early calls, or turns beyond the first, below which they have collapsed."""

FEW = 0.3
"""Early calls, or turns beyond the first, below which there is nothing to collapse."""

MORE = 1.5
"""Late over early turns or calls above which a rollout goes on for longer."""

UNPAID = 0.05
"""A gain of reward below this share of its range is not worth more turns."""

STOPPED = 0.25
"""Share of rollouts that a limit on turns stops, above which it decides the reward."""

FULL = 0.9
"""Late turns over the most there are, each beyond the first, above which nearly all rollouts take all turns."""

ROOM = 0.7
"""The same ratio at first, below which the limit was not reached."""

WITH_CALLS = 0.9
"""Correlation of calls and a cost over the rows from which on the cost is that of calls."""

FAILING = 0.25
"""Share of tool calls that fail above which, where it has doubled, tools are failing."""

MOSTLY = 0.5
"""The same where it was high from the start."""

ZEROS = (0.3, 3.0)
"""Reward that a failed rollout costs, over the mean reward, where failures are paid as zeros."""

SOME = 0.02
"""Share of failed rollouts, in the worst tenth of the rows, below which nothing can be said of them."""


FOLLOWS = (
    "starved", "saturated", "constant reward", "empty steps", "reward decline", "length", "held-out decline",
    "dead after a fall",
)  # fmt: skip
"""What follows where the policy no longer calls: rollouts are alike, short, and paid less."""


OF_A_COST = (
    "go back to before the fall, and let giving up earn no more than trying: {cost} is less of a cost the less is "
    "tried, so charge a rollout that tries nothing what the most calls cost, or take that cost away until calls pay by "
    "themselves"
)
"""What to do where a part of the reward that is a cost shrinks with the calls."""


def _cost_of_calls(quantities: Quantities, series: MetricSeries) -> str:
    """The part of the reward that is 0 or less in every row, and shrinks in step with calls or turns; empty without."""
    for name, component in quantities.components().items():
        steps, cost, calls = _together(component, series)
        if len(steps) < SHORT or cost.max() > 0 or not np.ptp(cost) > 0 or not np.ptp(calls) > 0:
            continue
        shrinks = component.change(EARLY, LATE).p_up < RISES
        if shrinks and float(np.corrcoef(calls, cost)[0, 1]) < -WITH_CALLS:
            return name
    return ""


def _beyond_first(series: MetricSeries) -> MetricSeries:
    """Turns beyond the first; calls as they are."""
    less = 1.0 if series.name == "agent/turns" else 0.0
    return MetricSeries(series.name, series.steps, np.maximum(series.values - less, 0.0))


def _collapse(quantities: Quantities) -> Finding:
    """Calls, or turns beyond the first, below COLLAPSED × what they were at first; or none at all, and no gain."""
    calls = quantities.get("agent/calls", SHORT)
    if calls is not None and not calls.values.any() and run_outcome.of_run(quantities.run).direction != "up":
        key = quantities.key(calls.name)
        because = f"{key} is 0 in all {len(calls)} {calls.rows}: the policy never calls a tool"
        return fact(True, because, (Sign(f"largest {calls.name}", 0.0, column=calls.name),), fault=UNCALLED,
                    brief=f"{key} is 0 in all {len(calls)} {calls.rows}")  # fmt: skip
    tests: list[Finding] = []
    evidence: list[Sign] = []
    for name in ("agent/calls", "agent/turns"):
        series = quantities.get(name, SHORT)
        if series is None:
            continue
        beyond = _beyond_first(series)
        late = beyond.level(LATE)
        evidence += _levels(series)
        for part in (EARLY, FIRST):
            first = beyond.level(part)
            if first.value < FEW:
                continue
            said = series.level(part).value, series.level(LATE).value
            a, b = apart(*said)
            cost = _cost_of_calls(quantities, series)
            beside = f", and {cost} {went(quantities.components()[cost])}" if cost else ""
            tests.append(
                measured(
                    beyond.change(part, LATE, ratio=COLLAPSED).p_down,
                    f"the policy went from {a} to {b} {_counted(quantities, name)}{_beside_reward(quantities)}{beside}",
                    remedy=OF_A_COST.format(cost=cost) if cost else "",
                    brief=quantities.went(name, *said),
                    begins=partial(onset.since, beyond, -1),
                    explains=FOLLOWS,
                    past=late.value < COLLAPSED * first.value,
                )
            )
    if not evidence:
        return cannot_tell("neither turns nor tool calls are logged", "agent/turns", "agent/calls")
    if not tests:
        return fact(False, "the policy made hardly any calls at first, so none could be lost", evidence)
    return _with(any_of(tests), evidence)


def _looping(quantities: Quantities) -> Finding:
    """Turns or calls MORE × as many as at first, without more reward than before they rose."""
    reward, margin = quantities.get("reward", SHORT), quantities.reward_margin(UNPAID)
    tests: list[Finding] = []
    evidence: list[Sign] = []
    for name in ("agent/turns", "agent/calls"):
        series = quantities.get(name, SHORT)
        if series is None:
            continue
        evidence += _levels(series)
        if reward is None or margin is None or series.level(EARLY).value < FEW:
            continue
        first, late = series.level(EARLY).value, series.level(LATE).value
        more = series.change(EARLY, LATE, ratio=MORE).p_up
        unpaid = reward.change(_before(series) if more < 0.05 else EARLY, LATE, minus=margin).p_down
        a, b = apart(first, late)
        tests.append(
            measured(
                max(more, unpaid),
                f"the policy went from {a} to {b} {_counted(quantities, name)}, while the reward {went(reward)}",
                brief=quantities.went(name, first, late),
                begins=partial(onset.since, series, 1),
                explains=("turn limit", "length"),
            )
        )
    if not evidence:
        return cannot_tell("neither turns nor tool calls are logged", "agent/turns", "agent/calls")
    if not tests:
        return cannot_tell("no reward is logged beside the turns", "reward")
    return _with(any_of(tests), evidence)


def _counted(quantities: Quantities, name: str) -> str:
    """What the turns or calls of a rollout are, with the log's own key where that counts messages of others too."""
    if name != "agent/turns":
        return "tool calls per rollout"
    key = quantities.key(name)
    whole = key.removesuffix(" ÷ 2")
    own = "" if whole == key else f" (half of {whole}, which counts the messages of users and tools too)"
    return f"turns per rollout{own}"


def _before(series: MetricSeries) -> level.Span:
    """The part of the run before a metric began to rise, as long as EARLY; EARLY where that cannot be dated."""
    since = onset.since(series, 1)
    if since is None:
        return EARLY
    share = float(np.searchsorted(series.steps, since.first)) / len(series)
    return (share - EARLY[1], share) if share > EARLY[1] else EARLY


_OF_THE_LIMIT, _AS_BEFORE = ("looping", "length", "reward decline", "held-out decline"), 0.9
"""Faults that follow where stopped rollouts take the reward, and late over early reward of the others, at least."""


def _takes_the_reward(quantities: Quantities, first: float, last: float) -> bool:
    """Whether rollouts that are not stopped are paid as before, if stopped ones are paid the least."""
    reward, ends = quantities.get("reward", SHORT), quantities.reward_range
    if reward is None or ends is None or not first < last < 1:
        return False
    early, late = ((reward.level(span).value - ends[0]) / (1 - share) for span, share in ((EARLY, first), (LATE, last)))
    return late >= _AS_BEFORE * early > 0


def _turn_limit(quantities: Quantities) -> Finding:
    """More than STOPPED of the rollouts stopped by a limit on turns; or nearly all take the most turns there are."""
    stopped = quantities.get("agent/stop_turns", SHORT)
    if stopped is not None:
        over = stopped.level(LATE, STOPPED)
        first, share = stopped.level(EARLY).value, over.value + STOPPED
        evidence = (late_level(stopped.name, share, over.se, f"limit {STOPPED:g}"),)
        takes_it = _takes_the_reward(quantities, first, share)  # whenever it began
        return measured(
            over.p_up,
            f"{share:.0%} of rollouts are stopped by the limit on turns, and not by their environment or by the limit "
            "on tokens",
            evidence,
            brief=f"{apart_shares(first, share)} of rollouts stopped at the turn limit",
            begins=partial(onset.since, stopped, 1) if first < STOPPED and not takes_it else None,
            past=over.value > 0,
            explains=_OF_THE_LIMIT if takes_it else (),
        )
    turns, most = quantities.get("agent/turns", SHORT), quantities.get("agent/turns_max", SHORT)
    if turns is None or most is None:
        return cannot_tell("what stopped the rollouts is not logged", "agent/stop_turns", "agent/turns_max")
    steps, mean, largest = _together(turns, most)
    if len(steps) < SHORT or largest.max() <= 1:
        return cannot_tell("what stopped the rollouts is not logged", "agent/stop_turns")
    full = MetricSeries(turns.name, steps, (mean - 1) / max(float(largest.max()) - 1, 1.0))
    late_rows = level.rows(len(steps), LATE)
    wall = float(np.ptp(largest[late_rows])) == 0
    over, room = full.level(LATE, FULL), full.level(EARLY, ROOM)
    seen = (*_levels(turns), late_level(most.name, float(largest[late_rows].mean()), 0.0))
    return measured(
        max(over.p_up, room.p_down) if wall else 1.0,
        f"nearly all rollouts take the most turns there are, {number(float(largest.max()))}: {went(turns)} on average",
        seen,
        brief=quantities.went(turns.name, turns.level(EARLY).value, turns.level(LATE).value),
        begins=partial(onset.since, turns, 1),
    )


def _failing_calls(quantities: Quantities) -> Finding:
    """Tool calls that fail: FAILING of them and twice as many as at first, or MOSTLY of them all along; and whether the
    policy gets them wrong or the tools fail."""
    failures, bad = quantities.get("agent/call_failures", SHORT), quantities.get("agent/bad_calls", SHORT)
    tests: list[Finding] = []
    evidence: list[Sign] = []
    for series, fault in ((bad, "malformed calls"), (failures, "failing tools")):
        if series is None:
            continue
        evidence += _levels(series)
        first, late = series.level(EARLY).value, series.level(LATE).value
        doubled = max(series.level(LATE, FAILING).p_up, series.change(EARLY, LATE, ratio=2.0).p_up)
        p = min(1.0, 2 * min(doubled, series.level(LATE, MOSTLY).p_up))
        since = partial(onset.since, series, 1) if late > 2 * first else None
        own = fault if bad is None or fault == "malformed calls" or late > 2 * bad.level(LATE).value else ""
        if not own:  # the failures are those that the policy makes
            continue
        tests.append(
            measured(
                p,
                _why(quantities, series, fault, first, late),
                fault=fault,
                brief=f"{apart_shares(first, late)} of tool calls {'wrong' if fault == 'malformed calls' else 'fail'}",
                begins=since,
            )
        )
    if not tests:
        return cannot_tell("failures of tool calls are not logged", "agent/call_failures")
    return _with(any_of(tests), evidence)


def _why(quantities: Quantities, series: MetricSeries, fault: str, first: float, late: float) -> str:
    """How many calls fail, and what their course says of the cause, as a clause."""
    if fault == "malformed calls":
        return f"the policy gets {percent(late)} of its calls wrong ({percent(first)} at first): tools that do not " \
            "exist, or actions that the environment does not take"  # fmt: skip
    said = f"{percent(late)} of tool calls fail, {percent(first)} at first"
    if late <= 2 * first:
        return f"{said}, and the log does not say whether the tool fails or the call is wrong"
    if two_levels(series.values) > straight(series.steps, series.values)[1]:
        return f"{said}: they jumped, as when a tool, its server or its quota fails"
    calls = quantities.get("agent/calls", SHORT)
    beside = "" if calls is None else f", while calls {went(calls)}"
    return f"{said}: they rise bit by bit{beside}, as when the policy drifts to calls that the tool refuses"


def _failures_as_zeros(quantities: Quantities) -> Finding:
    """The reward falls in the rows in which more rollouts failed, by as much as if these were paid nothing.

    Differences of successive rows, so that neither trend counts: a share e of failed rollouts that are paid 0 takes
    e × (mean reward of the others) off the mean.
    """
    errors, reward = quantities.get("agent/errors", SHORT), quantities.get("reward", SHORT)
    if errors is None or reward is None:
        return cannot_tell("failed rollouts are not logged beside a reward", "agent/errors", "reward")
    steps, failed, paid = _together(errors, reward)
    if len(steps) >= SHORT and (failed == 1).all() and not paid.any():
        return _all_failed(errors)
    worst = float(np.quantile(failed, 0.9)) if len(failed) else 0.0
    evidence = (Sign("share of failed rollouts, worst tenth of the rows", worst, column=errors.name),)
    if len(steps) < SHORT or worst < SOME:
        return fact(False, f"hardly any rollouts fail, {percent(worst, 1)} in the worst tenth of the rows", evidence)
    x, y = np.diff(failed), np.diff(paid)
    slope, p = _slope_below(x, y)
    others = float(np.mean(paid / np.maximum(1 - failed, 0.1)))
    size = -slope / others if others > 0 else 0.0
    because = (
        f"the reward falls with the share of failed rollouts, by {number(-slope)} for each, where the others are paid "
        f"{number(others)}: failures count as rewards of about 0"
    )
    fits = ZEROS[0] < size < ZEROS[1]
    return measured(p if fits else 1.0, because, evidence, brief=f"{percent(worst)} of rollouts fail and are paid 0")


def _all_failed(errors: MetricSeries) -> Finding:
    """That every rollout failed in every row, so that the reward says nothing of what the policy wrote."""
    brief = f"every rollout failed or has no reward in all {len(errors)} {errors.rows}"
    because = f"{brief}, and counts as 0"
    return fact(
        True, because, (Sign("least share of failed rollouts", 1.0, column=errors.name),),
        brief=brief, grades=("failing", "failing"),
        explains=("never paid", *FOLLOWS, "zero loss", "no learning"),
        remedy="read the trace of one rollout to its end: whether the model was called at all, and whether the reward "
        "was returned or emitted where the trainer looks for it",
    )  # fmt: skip


def _levels(series: MetricSeries) -> tuple[Sign, Sign]:
    first, late = series.level(EARLY), series.level(LATE)
    return early_level(series.name, first.value, first.se), late_level(series.name, late.value, late.se)


def _together(one: MetricSeries, other: MetricSeries) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps that two metrics have in common (n,), and the values of both (n,)."""
    steps, a, b = np.intersect1d(one.steps, other.steps, return_indices=True)
    return steps, one.values[a], other.values[b]


def _beside_reward(quantities: Quantities) -> str:
    reward = quantities.get("reward", SHORT)
    return "" if reward is None else f", while the reward {went(reward)}"


def _slope_below(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope of y (n,) over x (n,), and the p-value of one below 0 by a test of t; p is 1 where x is constant."""
    x, y = x - x.mean(), y - y.mean()
    total = float(x @ x)
    if total <= 0 or len(x) < 4:
        return 0.0, 1.0
    slope = float(x @ y) / total
    rest = y - slope * x
    se = math.sqrt(float(rest @ rest) / (len(x) - 2) / total)
    if se == 0:
        return slope, 0.0 if slope < 0 else 1.0
    return slope, float(stdtr(len(x) - 2, slope / se))


def _with(finding: Finding, evidence: list[Sign]) -> Finding:
    return replace(finding, evidence=tuple(evidence))


COLLAPSE = LogTest(
    "collapsed calls",
    _collapse,
    needs=("agent/calls", "agent/turns"),
    statistic="mean calls, and turns beyond the first, late less ρ × early",
    threshold=f"late < {COLLAPSED:g} × early, where early is at least {FEW:g}; or 0 calls in all rows, no gain: a fact",
    where_logged=True,
)
LOOPING = LogTest(
    "looping",
    _looping,
    needs=("agent/turns", "reward"),
    statistic="mean turns or calls, late less ρ × early, together with the change of reward",
    threshold=f"late > {MORE:g} × early and reward up < {UNPAID:g} of its range since they rose",
    where_logged=True,
)
TURN_LIMIT = LogTest(
    "turn limit",
    _turn_limit,
    needs=("agent/stop_turns",),
    statistic="late share of rollouts stopped by the limit on turns; or late turns over the most, beyond the first",
    threshold=f"{STOPPED:g}; or {FULL:g}, below {ROOM:g} at first",
    limit=True,
    where_logged=True,
)
FAILING_CALLS = LogTest(
    "failing tools",
    _failing_calls,
    needs=("agent/call_failures",),
    statistic="late share of tool calls that fail, and late less 2 × early",
    threshold=f"{FAILING:g} and doubled, or {MOSTLY:g}",
    where_logged=True,
)
ERRORS = LogTest(
    "failures as zeros",
    _failures_as_zeros,
    needs=("agent/errors", "reward"),
    statistic="slope of the reward's differences over those of the share of failed rollouts",
    threshold=f"below 0, by {ZEROS[0]:g} to {ZEROS[1]:g} × the reward of the others",
    where_logged=True,
)
