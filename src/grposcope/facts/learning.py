"""Did it learn? Decided once, for the terminal, the page and JSON alike.

The answer rests on the held-out score (`facts.heldout`) where a run was evaluated twice or more, and otherwise on the
training reward.

Intervals of held-out accuracies are those of `facts.intervals`.

The difference of two evaluations has the standard error √(se₁² + se₂²) of independent ones. Where both used the same
problems, as in `grposcope train`, their errors mostly go the same way and this error is too large: a change called
beyond chance is, and one called within chance may still be real.

The training reward is compared between the first 15 % and the last 20 % of the steps, with the standard error of a
mean curve under autocorrelated noise (`timeseries.change`), at 5 % on each side. Where such noise may explain the
change, but noise that rows do not share cannot (p < WHITE), it is said that it cannot be told from slow wandering.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from grposcope.diagnosis.outcome import LOST, Outcome
from grposcope.diagnosis.quantities import LEAST, MetricSeries, Quantities
from grposcope.facts import heldout
from grposcope.facts.intervals import ENOUGH, Z, interval, shown_interval, trusted
from grposcope.formatting import number
from grposcope.records import Estimate
from grposcope.runs.run import Run
from grposcope.timeseries import change as trend
from grposcope.timeseries import level
from grposcope.timeseries.change import EARLY, LATE
from grposcope.timeseries.mean_curve import SamplingVariance
from grposcope.timeseries.noise import harmonic_mean

SIGNIFICANT = 0.05
"""One-sided p-value below which the training reward rose or fell."""

WHITE = 0.01
"""p-value below which a change is more than noise that rows do not share."""

WANDERS = "it cannot be told from slow wandering"
"""Why the verdict is unknown where only wandering can explain a change."""

Direction = Literal["up", "down", "none", "unknown"]
"""Up or down beyond chance; none where a change could have been seen and was not; unknown where it cannot be told."""

NOISE = {False: "noise", True: "chance"}
"""What explains a change that is none, of the training reward and of held-out scores."""

VERBS = {"up": "rose", "down": "fell", "none": "went", "unknown": "went"}


@dataclass(frozen=True)
class Change:
    """Difference between two held-out evaluations; for the verdict "unknown", difference.flag says why."""

    difference: Estimate
    verdict: Direction


@dataclass(frozen=True)
class Learning:
    """Whether a run learned.

    basis:       what was compared: held-out accuracy, training reward, or nothing.
    evaluations: (step, score) of every held-out evaluation.
    first, last: the first and last evaluation, or the reward of the first 15 % and the last 20 % of the steps.
    difference:  last − first; its flag says why the verdict is unknown.
    clause:      what changed from where to where and whether chance explains it, without a capital and a full stop.
    sentence:    the answer as the headline of a run.
    details:     further sentences: intervals, difference, best evaluation.
    """

    basis: Literal["held-out accuracy", "training reward", "nothing"]
    evaluations: tuple[tuple[int, Estimate], ...]
    first: Estimate
    last: Estimate
    difference: Estimate
    verdict: Direction
    clause: str
    sentence: str
    details: tuple[str, ...] = ()

    @property
    def best(self) -> tuple[int, Estimate] | None:
        """Step and score of the first evaluation with the highest value; None without evaluations."""
        finite = [evaluation for evaluation in self.evaluations if math.isfinite(evaluation[1].value)]
        return max(finite or self.evaluations, key=lambda evaluation: evaluation[1].value, default=None)


def of_run(run: Run) -> Learning:
    """Whether a recorded run learned."""
    reward = _rewards(run)
    return of_curves(evaluations(run), reward.values, steps(run), reward.sampling, score(run))


def training_reward(run: Run) -> Learning:
    """Whether the training reward of a recorded run changed, whatever its held-out evaluations say."""
    reward = _rewards(run)
    return of_reward(reward.values, steps(run), reward.sampling)


def reward_clause(run: Run, outcome: Outcome) -> str:
    """What the training reward did where its outcome cannot be told, as a clause that names a better part before.

    A part is better if the end is below it by a standard error and by the share outcome.LOST of what was gained.
    """
    said = training_reward(run)
    lost = outcome.best.value - outcome.end.value
    if not lost > max(LOST * outcome.gain, outcome.end.se) or outcome.gain <= outcome.best.se:
        return said.clause
    start, best, end = (number(level.value) for level in (outcome.start, outcome.best, outcome.end))
    moved = f"training reward went from {start} to {best} around step {outcome.best_step:,} and to {end} in the end"
    return f"{moved}; whether it lost what it had cannot be told from slow wandering"


def outcome_clause(outcome: Outcome, steps: int) -> str:
    """What became of a run of `steps` steps, as a clause without a capital and a full stop."""
    if not outcome.name or not math.isfinite(outcome.end.value):
        return ""
    what = f"held-out {heldout.name(outcome.name)}" if outcome.heldout else "training reward"
    levels = [level.value for level in (outcome.start, outcome.best, outcome.end)]
    shares = outcome.heldout and heldout.are_shares(levels)
    start, best, end = (heldout.shown(level, shares) for level in levels)
    over = _over(steps)
    since = f" and stands still since step {outcome.middle:,}" if outcome.still else ""
    if outcome.fate == "cannot tell" and outcome.best_step < outcome.last:
        return f"{what} went from {start} to {best} around step {outcome.best_step:,} and to {end} in the end"
    return {
        "learned": f"{what} rose from {start} to {end} {over}, more than {NOISE[outcome.heldout]} explains{since}",
        "stalled": f"{what} rose from {start} to {end}{since}",
        "solved": f"{what} was near the top of its range from the start, at {end} in the end",
        "lost": f"{what} rose from {start} to {best} around step {outcome.best_step:,} and fell to {end} since",
        "fell": f"{what} fell from {best} to {end}, its highest was around step {outcome.best_step:,}",
        "flat": f"{what} stayed at {end} {over}",
        "cannot tell": f"{what} went from {start} to {end} {over}, no more than {NOISE[outcome.heldout]} explains",
    }[outcome.fate]


def of_curves(
    evaluated: Sequence[tuple[int, Estimate]], reward: ArrayLike, steps: int,
    sampling: SamplingVariance | None = None, metric: str = "pass@1",
) -> Learning:  # fmt: skip
    """Whether a run of `steps` steps learned, from evaluations of a metric, or else from its rewards (n,).

    sampling: as in `of_reward`.
    """
    if len(evaluated) > 1:
        return _of_evaluations(tuple(evaluated), steps, metric)
    return replace(of_reward(reward, steps, sampling), evaluations=tuple(evaluated))


def of_reward(reward: ArrayLike, steps: int, sampling: SamplingVariance | None = None) -> Learning:
    """Whether the training reward changed over a run of `steps` steps; rewards (n,) in order, NaN where absent.

    sampling: the variance that each reward has because its rollouts are drawn anew, where it is known.
    """
    values = np.asarray(reward, np.float64)
    values = values[np.isfinite(values)]
    n = len(values)
    if not steps or not n:
        nothing = Estimate(math.nan, math.nan, 0, "no reward is recorded")
        trained = f"Trained {_over(steps)}; no reward is recorded, so whether it learned cannot be told."
        sentence = trained if steps else "No optimiser step is recorded yet."
        return Learning("nothing", (), nothing, nothing, nothing, "unknown", nothing.flag, sentence)
    if n < LEAST:
        first, last = (float(values[level.rows(n, span, least=1)].mean()) for span in (EARLY, LATE))
        flag = f"{n} reward{' is' if n == 1 else 's are'} too few"
        early, late, difference = (Estimate(v, math.nan, n, flag) for v in (first, last, last - first))
        verdict: Direction = "unknown"
    else:
        curve = trend.fit(values, sampling)
        verdict = _direction(curve, trend.fit_line(values, sampling))
        flag = WANDERS if verdict == "unknown" else ""
        changed = curve.change(EARLY, LATE)
        early, late = (Estimate(t.value, t.se, n) for t in (curve.level(EARLY), curve.level(LATE)))
        difference = Estimate(changed.value, changed.se, n, flag)
    ends = f"from {number(early.value)} to {number(late.value)}"
    clause = f"training reward {VERBS[verdict]} {ends} {_over(steps)}, {_chance(verdict, difference, 'noise')}"
    if difference.flag == WANDERS:
        more = "a longer run" if sampling is not None else "a longer run, or the number of rollouts per step,"
        clause = f"training reward went {ends} {_over(steps)}, but {WANDERS} ({more} would decide)"
    if n >= LEAST and not np.ptp(values):
        clause = f"training reward was {number(float(values[0]))} in every row {_over(steps)}"
    sentence = f"{_capital(clause)}; without a second held-out evaluation, whether it learned cannot be told."
    return Learning("training reward", (), early, late, difference, verdict, clause, sentence)


def evaluations(run: Run) -> tuple[tuple[int, Estimate], ...]:
    """(step, score) of every held-out evaluation of a run."""
    return heldout.evaluations(run, metric) if (metric := score(run)) else ()


def score(run: Run) -> str:
    """The held-out score of a run that is looked at; empty if it has none."""
    return next(iter(heldout.of_run(run)), "")


def change(first: Estimate, last: Estimate) -> Change:
    """Difference between the accuracies of two policies, and whether it is more than chance explains."""
    n = min(first.n, last.n)
    value = last.value - first.value
    if trusted(first) and trusted(last):
        error = math.hypot(first.se, last.se)
        return Change(Estimate(value, error, n), "none" if abs(value) <= Z * error else "up" if value > 0 else "down")
    reason = f"{n} problems are too few" if n < ENOUGH else "all problems came out alike"
    difference = Estimate(value, math.nan, n, reason)
    (low, high), (low_last, high_last) = interval(first), interval(last)
    if low_last > high:
        return Change(difference, "up")
    if high_last < low:
        return Change(difference, "down")
    return Change(difference, "unknown" if n < ENOUGH or not math.isfinite(value) else "none")


def _of_evaluations(evaluated: tuple[tuple[int, Estimate], ...], steps: int, metric: str) -> Learning:
    first, last = evaluated[0][1], evaluated[-1][1]
    changed = change(first, last)
    shares = heldout.are_shares(value.value for _, value in evaluated)
    ends = f"from {heldout.shown(first.value, shares)} to {heldout.shown(last.value, shares)}"
    tail = _chance(changed.verdict, changed.difference, "chance")
    clause = f"held-out {heldout.name(metric)} {VERBS[changed.verdict]} {ends} {_over(steps)}, {tail}"
    intervals = f"{shown_interval(first, shares)} at first, {shown_interval(last, shares)} at last"
    basis = f"over {last.n:,} problems" if last.n else "estimated from neighbouring evaluations"
    text = f"95% intervals: {intervals}, {basis}."
    difference = changed.difference
    if math.isfinite(difference.se):
        low, high = (_difference(end, shares) for end in difference.interval())
        text += f" The difference is {_difference(difference.value, shares)}{' points' * shares}, from {low} to {high}."
    if not math.isfinite(first.se + last.se):
        text = ""
    elif not (trusted(first) and trusted(last)):
        text += " Wilson intervals, since there are few problems or all came out alike."
    sentence = f"{_capital(clause)}."
    learning = Learning(
        "held-out accuracy",
        evaluated,
        first,
        last,
        difference,
        changed.verdict,
        clause,
        sentence,
        (text,) if text else (),
    )
    if learning.best is None or learning.best[1].value <= last.value:
        return learning
    step, best = learning.best
    highest = f"The highest evaluation was {heldout.shown(best.value, shares, 1)}, after step {step:,}."
    return replace(learning, details=(*learning.details, highest))


def _direction(curve: trend.MeanCurve, line: trend.MeanCurve | None) -> Direction:
    """Up or down where curve or line say so; unknown where wandering may explain a change and white noise may not."""
    fits = [curve] if line is None else [curve, line]
    changes = [fit.change(EARLY, LATE) for fit in fits]
    if harmonic_mean([test.p_up for test in changes]) < SIGNIFICANT:
        return "up"
    if harmonic_mean([test.p_down for test in changes]) < SIGNIFICANT:
        return "down"
    white = [fit.if_white.change(EARLY, LATE) for fit in fits]
    return "unknown" if min(min(test.p_up, test.p_down) for test in white) < WHITE else "none"


def _chance(verdict: Direction, difference: Estimate, chance: str) -> str:
    """Whether chance explains the change, as the end of a clause."""
    if verdict == "unknown":
        return f"but {difference.flag} to tell a change from {chance}"
    return f"{'no more' if verdict == 'none' else 'more'} than {chance} explains"


def _rewards(run: Run) -> MetricSeries:
    """Training rewards of a run that are comparable with each other, if there are enough of them, else all."""
    quantities = Quantities(run)
    reward = quantities.get("reward") or quantities.get("reward", least=1)
    return MetricSeries("reward", np.empty(0), np.empty(0)) if reward is None else reward


def steps(run: Run) -> int:
    """Optimiser steps from the first to the last row; more than rows where only some steps are logged."""
    step = run.table["step"]
    step = step[np.isfinite(step)]
    return int(step[-1] - step[0]) + run.window if len(step) else run.steps


def _over(steps: int) -> str:
    return f"over {steps:,} step{'s' * (steps != 1)}"


def _capital(clause: str) -> str:
    return clause[0].upper() + clause[1:]


def _difference(value: float, shares: bool) -> str:
    """A difference of scores with its sign, of shares in percentage points."""
    return (f"{100 * value:+.1f}" if shares else f"{value:+.3g}").replace("-", "−")
