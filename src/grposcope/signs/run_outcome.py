"""What became of a run: by its held-out score if that was evaluated to the end, else by right answers on the rows of
training where they are logged beside the reward, else by its reward."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from grposcope.core.estimate import Estimate
from grposcope.core.finding import Grade, Interval
from grposcope.core.metrics import LOGGED, METRICS
from grposcope.core.run import Evaluations, Run, once
from grposcope.logs.keys import TIMES
from grposcope.maths.intervals import Z, trusted, wilson
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import LATE
from grposcope.maths.timeseries.noise import Array
from grposcope.maths.timeseries.shares import sampling_variance
from grposcope.signs import answers, onset, outcome_tests
from grposcope.signs.heldout import ESTIMATED, UNNAMED, heldout_scores, score_rank
from grposcope.signs.heldout import of_run as of_scores
from grposcope.signs.outcome import Outcome, State
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities
from grposcope.signs.short_dip import short_dip
from grposcope.signs.thresholds import CERTAIN, FEWEST, PROBLEMS, RISES, STILL

TWO = 2
"""Evaluations that are enough where each has its standard error."""

SLIDE = 0.15
"""Share of the run by which a fall has begun before its largest step, from which on it is a slide and not sudden."""

_DOWN = 0.1
"""Share of a fall that an evaluation may have lost and is still at the level before it."""

_FIRST: tuple[State, ...] = ("lost", "down", "proxy", "hump", "up", "small", "stalled", "top", "level", "undecided")
"""Whose outcome of several tasks is said: what is lost first, then what was gained."""

_KEPT = f"{__name__}.of_reward"
"""Where the outcome of the reward is kept."""

_SELDOM = 0.25
"""Share of the rows of the reward that a column has at most, to be looked at as an evaluation is."""

OTHERS = 12
"""Held-out scores beside that of the outcome that are looked at for a fall, at most."""


@once
def of_run(run: Run) -> Outcome:
    """What became of the run: by its held-out score, else by right answers on the rows of training, else by its reward.

    A held-out score that says little (near the top, level) gives way to a reward that fell. Where nothing has levels,
    `missing` says what is not logged. Of tasks in turn it is that of the one that ends worst, or else that gained.
    """
    if run.in_turn:
        tasks = [replace(of_run(task), task=name) for name, task in run.scopes.items()]
        return min(tasks, key=lambda outcome: _FIRST.index(outcome.state))
    quantities = Quantities(run)
    return _dated(_of_run(quantities), quantities)


def _dated(outcome: Outcome, quantities: Quantities) -> Outcome:
    """An outcome that fell, with since when."""
    if outcome.direction != "down":
        return outcome
    scores = [heldout.score for heldout in heldout_scores(quantities, TWO)] if outcome.heldout else []
    series = next((score for score in scores if score.name == outcome.name), None) or quantities.column(outcome.name)
    if series is None:
        return outcome
    fall, row = onset.since(series, -1), series.present.fall
    slid = fall is not None and row is not None and series.steps[row] - fall.step > SLIDE * np.ptp(series.steps)
    high = _last_high(outcome, series) if outcome.heldout else None
    return replace(outcome, fall=fall, sudden=outcome.sudden and not slid, high=high)


def _last_high(outcome: Outcome, series: MetricSeries) -> int | None:
    """The step of the last evaluation at the level before the fall, to _DOWN of it; None where none is."""
    level = outcome.before.value - _DOWN * (outcome.before.value - outcome.end.value)
    rows = np.flatnonzero(series.values >= level)
    return int(series.steps[rows[-1]]) if len(rows) else None


def _of_run(quantities: Quantities) -> Outcome:
    by_score, by_reward = of_heldout(quantities), of_reward(quantities)
    says_little = by_score.fate in ("solved", "flat") or score_rank(by_score.name) == UNNAMED
    if by_score.known and says_little and by_reward.direction == "down":
        return by_reward
    if by_score.fate != "cannot tell" or (by_score.known and not by_reward.known):
        return by_score
    before = _before_the_sum(_of_answers(quantities), by_reward)
    gained = before.fate == "cannot tell" and before.no_gain and _a_part_gained(quantities)
    return replace(before, no_gain=False) if gained else before


def _before_the_sum(right: Outcome | None, reward: Outcome) -> Outcome:
    """The outcome by right answers where they decide it, else by the reward, which may have risen without them."""
    if right is None:
        return reward
    if right.direction in ("up", "down") or not reward.known:
        return right
    if right.fate == "flat" and reward.direction == "up":
        return replace(reward, proxy=True, answers=(right.name, right.start, right.end))
    return right if reward.direction == "up" and right.no_gain and right.end.value <= right.start.value else reward


def _a_part_gained(quantities: Quantities) -> bool:
    """Whether a part of the reward certainly rose, so that something was learned whatever its sum shows.

    It is higher by the noise of its rows, and wandering does not explain it either.
    """
    parts = [component for component in quantities.components().values() if len(component) >= LEAST]
    certain = [component for component in parts if component.present.rise.p_up * len(parts) < CERTAIN]
    return len(parts) > 1 and any(component.curve.change().p_up < RISES for component in certain)


def of_heldout(quantities: Quantities, least: int = TWO, stale: bool = False) -> Outcome:
    """What the held-out score says, whatever the reward does; "cannot tell" where it was not evaluated to the end.

    least: evaluations below which a score is none. stale: it need not have been evaluated to the end.
    """
    scored = heldout_scores(quantities, least)
    if not scored:
        return Outcome("cannot tell", heldout=True)
    return of_score(quantities, scored[0].score, scored[0].variance, stale)


def of_score(quantities: Quantities, heldout: MetricSeries, variance: float, stale: bool = False) -> Outcome:
    """What one held-out score says. variance: of one of its values where its digits or errors show it, else NaN."""
    rows = quantities.run.evaluations.of(heldout.name)
    shares = heldout.values.min() >= 0 and heldout.values.max() <= 1 and not _is_beyond(quantities, heldout)
    ends, margin = ((0.0, 1.0), STILL) if shares else (None, None)
    errors = _errors(rows, shares)[np.isfinite(rows.value)]
    if shares and len(heldout) < FEWEST and not np.isfinite(errors).all():
        errors = _assumed(heldout.values, variance)
    outcome_of_score = outcome_tests.of_evaluations(heldout.steps, heldout.values, errors, ends, margin, heldout.name)
    n, flag = int(rows.n[-1]), "" if np.isfinite(rows.se).any() else ESTIMATED
    start, best, end, before = (
        replace(level, n=n, flag=flag)
        for level in (outcome_of_score.start, outcome_of_score.best, outcome_of_score.end, outcome_of_score.before)
    )
    outcome_of_score = replace(outcome_of_score, start=start, best=best, end=end, before=before)
    if stale or is_current(heldout, _reward(quantities)):
        return outcome_of_score
    return Outcome("cannot tell", heldout.name, heldout=True, missing="no evaluation lies in the last fifth of the run")


def scores_alike(quantities: Quantities, name: str) -> list[Outcome]:
    """What became of the scores by the same measure on other data sets: their names differ in one part of the path
    alone, and are none of the reward, which the training's own function may grade."""
    path = name.split("/")
    outcomes = []
    for other in of_scores(quantities.run):
        parts = other.split("/")
        alike = len(parts) == len(path) > 1 and sum(a != b for a, b in zip(parts, path, strict=True)) == 1
        if not alike or {"reward", "score"} & {*answers.words(other)}:
            continue
        rows = quantities.run.evaluations.of(other)
        seen = np.isfinite(rows.value)
        if seen.sum() >= TWO:
            series = MetricSeries(other, rows.step[seen].astype(np.float64), rows.value[seen])
            outcomes.append(of_score(quantities, series, sampling_variance(series.values), stale=True))
    return outcomes


def other_falls(run: Run, outcome: Outcome) -> list[Outcome]:
    """Held-out scores beside the one of the outcome that lost a quarter of their gain or level, in their order; then
    the shares that few rows of training have, by name a score."""
    quantities = Quantities(run)
    names = [name for name in of_scores(run) if name != outcome.name][:OTHERS]
    evaluated = [(name, run.evaluations.of(name)) for name in names]
    series = [MetricSeries(name, rows.step[keep].astype(np.float64), rows.value[keep])
              for name, rows in evaluated if (keep := np.isfinite(rows.value)).sum() >= TWO]  # fmt: skip
    outcomes = [of_score(quantities, score, sampling_variance(score.values)) for score in series]
    outcomes += [_of_seldom(score) for score in _seldom(quantities) if score.name != outcome.name][:OTHERS]
    return [fall for fall in outcomes if fall.state == "lost"]


def _seldom(quantities: Quantities) -> list[MetricSeries]:
    """The columns of training that are shares, by name a score and no time of the machine, and are there in _SELDOM of
    the rows of the reward or fewer, from TWO on."""
    reward, run = _reward(quantities), quantities.run
    others = (name for name in run.table if name not in {**METRICS, **LOGGED} and not name.startswith(TIMES))
    names = [name for name in others if score_rank(name) is not None]
    series = [column for name in names if (column := quantities.column(name)) is not None]
    most = 0.0 if reward is None else _SELDOM * len(reward)
    return [column for column in series if TWO <= len(column) <= most and answers.is_share(column)]


def _of_seldom(score: MetricSeries) -> Outcome:
    """What became of a share that few rows of training have, tested as evaluations are."""
    few = len(score) < FEWEST
    errors = _assumed(score.values, sampling_variance(score.values)) if few else np.full(len(score), np.nan)
    outcome = outcome_tests.of_evaluations(score.steps, score.values, errors, (0.0, 1.0), STILL, score.name)
    return replace(outcome, heldout=False)


def _of_answers(quantities: Quantities) -> Outcome | None:
    """What right answers on the rows of training say; None where no column counts them apart from the reward."""
    series = answers.of_run(quantities)
    if series is None or len(series) < SHORT:
        return None
    shares = answers.is_share(series)
    spread = quantities.column(series.name.replace("component/", "component_std/", 1))
    margin = STILL if shares else None if spread is None else 2 * STILL * float(spread.values.mean())
    if len(series) < LEAST:
        return outcome_tests.of_few(series, margin, "")
    return outcome_tests.of_reward(series, (0.0, 1.0) if shares else None, margin or None)


def of_reward(quantities: Quantities) -> Outcome:
    """What the training reward says, whatever the evaluations do; kept with the run."""
    memory = quantities.run.memory
    if _KEPT not in memory:
        memory[_KEPT] = _of_reward(quantities)
    outcome: Outcome = memory[_KEPT]
    return outcome


def _of_reward(quantities: Quantities) -> Outcome:
    reward = _reward(quantities)
    if reward is None:
        missing = quantities.absence("reward") if quantities.run.steps else "no optimiser step is recorded yet"
        return Outcome("cannot tell", missing=missing)
    if len(reward) < level.LEAST:
        return Outcome("cannot tell", reward.name, missing=quantities.absence("reward"))
    margin = quantities.reward_margin(STILL)
    if len(reward) < LEAST:
        return outcome_tests.of_few(reward, margin, quantities.absence("reward"))
    outcome_of_reward = outcome_tests.of_reward(reward, quantities.reward_range, margin, quantities.least_gain(STILL))
    if (
        outcome_of_reward.fate == "cannot tell"
        and reward.sampling is None
        and (dip := short_dip(reward.values)) is not None
    ):
        rest = np.delete(np.arange(len(reward)), slice(*dip))
        shorter = MetricSeries(reward.name, reward.steps[rest], reward.values[rest])
        again = outcome_tests.of_reward(shorter, quantities.reward_range, margin, quantities.least_gain(STILL))
        if again.fate != "cannot tell":
            first, last = (int(reward.steps[row]) for row in (dip[0], dip[1] - 1))
            levels = {name: getattr(outcome_of_reward, name) for name in ("start", "end", "best", "best_step")}
            outcome_of_reward = replace(again, **levels, dip=Interval(first, first, last))
    if outcome_of_reward.fate == "solved" and quantities.least_spread is not None:  # the top is not known
        outcome_of_reward = replace(outcome_of_reward, fate="flat")
    return replace(outcome_of_reward, sampled=reward.sampling is not None, sum_of_parts=_sums_parts(quantities))


def _sums_parts(quantities: Quantities) -> bool:
    """Whether the reward has several parts, and neither its groups nor its extremes show how high it can be."""
    low, high = quantities.column("reward_min"), quantities.column("reward_max")
    seen = low is not None and high is not None and high.values.max() > low.values.min()
    discrete = seen or quantities.binary_rewards or len(quantities.run.groups)
    return not discrete and len(answers.rewards_of_parts(quantities.run)) > 1


def _reward(quantities: Quantities) -> MetricSeries | None:
    """The reward with enough rows, if there is one, else the one with some."""
    return quantities.get("reward") or quantities.get("reward", least=1)


def _is_beyond(quantities: Quantities, score: MetricSeries) -> bool:
    """Whether a held-out reward is of a training reward with means outside of [0, 1], so that it is no share."""
    reward = quantities.get("reward", SHORT) if score.name == "reward" else None
    return reward is not None and not (reward.values.min() >= 0 and reward.values.max() <= 1)


def _errors(rows: Evaluations, shares: bool) -> Array:
    """Standard errors (E,) of evaluations: those of the log; for shares of few problems, or all alike, the longer
    side of Wilson's interval over Z."""
    errors = rows.se.astype(np.float64)
    for i, (value, se, n) in enumerate(zip(rows.value, rows.se, rows.n, strict=True)):
        if shares and n and np.isfinite(value + se) and not trusted(Estimate(value, se, n)):
            low, high = wilson(float(value), int(n))
            errors[i] = max(high - value, value - low) / Z
    return errors


def _assumed(values: Array, variance: float) -> Array:
    """Standard errors (E,) of a few shares without any in the log: by their digits, else those of PROBLEMS problems."""
    if np.isfinite(variance) and variance > 0:
        return np.full(len(values), math.sqrt(variance))
    p = np.clip(values, 1 / PROBLEMS, 1 - 1 / PROBLEMS)
    return np.asarray(np.sqrt(p * (1 - p) / PROBLEMS))


def is_current(heldout: MetricSeries, reward: MetricSeries | None) -> bool:
    """Whether the last evaluation lies in the last part of the run."""
    if reward is None:
        return True
    begin, end = reward.steps[0], reward.steps[-1]
    return bool(heldout.steps[-1] >= begin + LATE[0] * (end - begin))


def steps(run: Run) -> int:
    """Optimiser steps from the first to the last row; more than rows where only some steps are logged.

    Of a run without rows, those between its first and last evaluation.
    """
    step = run.table["step"]
    step = step[np.isfinite(step)]
    if len(step):
        return int(step[-1] - step[0]) + run.window
    return int(np.ptp(run.evaluations.step)) if len(run.evaluations.step) else 0


def although_it_learned(run: Run) -> tuple[Grade, Grade] | None:
    """Grades of a fact that should prevent learning: a warning where the reward rose all the same, else its fault's."""
    return ("warning", "warning") if of_run(run).direction == "up" else None
