"""Held-out scores of a run, of whichever trainer: which there are, their values with errors, their names, and what of
the training each should follow.

A score follows the part of the training reward that measures the same: the column of the same name; for a score in
[0, 1], the one component whose name says that it pays for right answers; else the reward. Gains are compared, not
levels, so a constant bonus in the reward changes nothing. How much a score should gain is measured by what the reward
leaves to gain: a score near its ceiling has little room.

Where a log gives no standard error, that of one evaluation is estimated from second differences of neighbouring
evaluations (`signs.outcome_tests.second_difference_variance`); n is 0 then, and the flag says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.estimate import Estimate
from grposcope.core.run import Evaluations, Floats, Run
from grposcope.core.text import number, percent, visible
from grposcope.maths.intervals import ENOUGH, Z, interval, shown_interval, trusted
from grposcope.maths.timeseries.change import EARLY
from grposcope.maths.timeseries.shares import sampling_variance
from grposcope.signs.answers import counts_answers, pays_for_answers, words
from grposcope.signs.outcome import Direction
from grposcope.signs.outcome_tests import second_difference_variance
from grposcope.signs.quantities import EVALUATIONS, MetricSeries, Quantities
from grposcope.signs.thresholds import FEWEST

Evaluated = tuple[tuple[int, Estimate], ...]
"""(step, score) of every evaluation, in order."""

ESTIMATED = "the log has no standard error; this one is estimated from neighbouring evaluations"
"""Flag of a score whose standard error is estimated."""

TOP = 0.9
"""A share that is never below this has little room to move, so that another score says more."""

_JUMP = 30.0
"""Squared second differences on either side of a jump of the level over the mean of the others, from which on they are
no noise: of white noise the two largest are so in 2 of 1,000 series of twelve, and in 1 of 100 of eight (simulated)."""

FOLLOWS = 1 / 3
"""A score that gains less than this share of what training reward gains does not follow it."""

_NOT_SCORES = re.compile(
    r"len|lengths?|stop|tokens?|trunc\w*|clip\w*|loss|entropy|kl|\w*time|runtime|seconds?|num|n|steps?|samples?"
    r"|epoch|dead|(?:std|min|max|best|worst)(?:@\d+)?|turns|grad|norm|lr|per|errors?|fail\w*|refus\w*|false|wrong|violations?"
)
"""Words in the names of what is evaluated beside a score."""

_SCORES = ("pass@1", "pass1", "accuracy", "acc", "correct", "success", "mean@", "reward", "score", "maj@")
"""Parts of the names of scores, the one that is looked at first standing first."""

WHOLE = frozenset(("all", "agg", "overall", "total", "average", "avg"))
"""Parts of the path of a score that is over all data sets."""

UNNAMED = len(_SCORES)
"""Rank of a score whose name does not say what it measures: it does not outweigh the reward."""


@dataclass(frozen=True)
class HeldOut:
    """A held-out score. variance: sampling variance of one of its values, NaN where it is not known.

    follows: what of the training it should follow; None where no scale makes them comparable. room: gain that the score
    should make per unit of gain of that, from 0 to 1.
    """

    score: MetricSeries
    variance: float
    follows: MetricSeries | None
    room: float = 1.0

    @property
    def title(self) -> str:
        """Its name in a sentence."""
        return "held-out " + self.score.name.removeprefix("component/")


def heldout_scores(quantities: Quantities, least: int = EVALUATIONS) -> list[HeldOut]:
    """The score that says most of what is meant, and the one that is the training reward itself; one, both or none.

    A metric that was evaluated fewer than `least` times is none.
    """
    candidates: list[tuple[tuple[int, bool, int, bool, int, str], MetricSeries]] = []
    evaluations = quantities.run.evaluations
    for metric in evaluations.metrics:
        rows = evaluations.of(metric)
        finite = np.isfinite(rows.value)
        rank = score_rank(metric)
        if finite.sum() >= least and rank is not None:
            series = MetricSeries(metric, rows.step[finite].astype(np.float64), rows.value[finite])
            longer = (_is_of_part(metric), len(words(metric)), metric)
            candidates.append(((rank, _stays_at_an_end(series.values), -len(series), *longer), series))
    if not candidates:
        return []
    named = quantities.run.setting("outcome")
    meant = min(candidates, key=lambda candidate: (candidate[1].name != named, candidate[0]))[1]
    same = next((series for _, series in candidates if series.name == "reward" and series is not meant), None)
    return [
        HeldOut(series, _variance(quantities, series), *_followed(quantities, series))
        for series in (meant, same)
        if series is not None
    ]


def score_rank(metric: str) -> int | None:
    """How soon an evaluated metric is taken for the held-out score, 0 first; None for what is no score, by its name."""
    if not _is_score(metric):
        return None
    if metric.startswith("component/"):  # of those, only what pays for answers is a score
        return 0
    rank = next((i for i, word in enumerate(_SCORES) if word in metric.lower()), UNNAMED)
    return min(rank, _SCORES.index("correct")) if counts_answers(metric) else rank


def _is_of_part(metric: str) -> bool:
    """Whether the path of a score does not say that it is over all data sets."""
    return not WHOLE & set(metric.lower().split("/"))


def _stays_at_an_end(values: Floats) -> bool:
    """Whether a score is a share that is never below TOP, or 0 in every evaluation: too easy or too hard to tell."""
    at_top = bool(len(values)) and float(values.min()) >= TOP and float(values.max()) <= 1
    return at_top or not values.any()


def _variance(quantities: Quantities, score: MetricSeries) -> float:
    """Sampling variance of one value of a score: from its logged standard errors, or the digits of shares."""
    logged = quantities.run.evaluations.of(score.name).se
    if len(logged) and np.isfinite(logged).all() and logged.any():
        return float(np.square(logged).mean())
    return sampling_variance(score.values)


def _is_score(metric: str) -> bool:
    """Whether an evaluated metric is a score, by its name; a component is one if it pays for right answers."""
    kind, _, rest = metric.partition("/")
    if kind in ("component", "component_std"):
        return kind == "component" and pays_for_answers(rest)
    return not any(_NOT_SCORES.fullmatch(word) for word in words(metric))


def _followed(quantities: Quantities, score: MetricSeries) -> tuple[MetricSeries | None, float]:
    """What the score should follow, None if nothing compares, and the share of its gain that there is room for."""
    same = quantities.get("reward") if score.name == "reward" else None
    if score.name.startswith("component/"):
        same = quantities.components().get(score.name.partition("/")[2])
    if same is None and {"reward", "score"} & set(words(score.name)) and score.name.startswith("val"):
        same = quantities.get("reward")  # verl grades both with one function
    if same is not None:
        top = max(float(score.values.max()), float(same.values.max()), _largest(quantities, same))
        return same, _share_left(score, top, same, top)
    part = _of_right_answers(quantities) or quantities.get("reward")
    if part is None or not comparable(quantities, part, score):
        return None, 1.0
    top = max(1.0, float(part.values.max()), _largest(quantities, part))
    return part, _share_left(score, 1.0, part, top)


def _of_right_answers(quantities: Quantities) -> MetricSeries | None:
    """The component that pays for right answers, where several are logged and only one of them does."""
    parts = quantities.components()
    right = [series for name, series in parts.items() if pays_for_answers(name)]
    return right[0] if len(right) == 1 and len(parts) > 1 else None


def comparable(quantities: Quantities, trained: MetricSeries, score: MetricSeries) -> bool:
    """Whether gains of a reward compare with those of a score: the score is in [0, 1], and rewards span little more.

    Where single rewards are not logged, their means must be in [−1, 2]: 0/1 or ±1 rewards, perhaps with a bonus.
    """
    if score.values.min() < 0 or score.values.max() > 1:
        return False
    logged = quantities.reward_range if trained.name == "reward" else None
    if logged is not None:
        return logged[1] - logged[0] <= 2
    return bool(trained.values.min() >= -1 and trained.values.max() <= 2)


def _largest(quantities: Quantities, trained: MetricSeries) -> float:
    """The largest single reward that was seen, where it is known."""
    return quantities.reward_range[1] if trained.name == "reward" and quantities.reward_range else -np.inf


def _share_left(score: MetricSeries, score_top: float, trained: MetricSeries, trained_top: float) -> float:
    """What the score has left to gain at the beginning over what the reward has, at most 1."""
    count = max(2, round(len(score) * EARLY[1]))
    gap = max(score_top - float(score.values[:count].mean()), 0.0)
    return min(1.0, gap / max(trained_top - trained.level(EARLY).value, 1e-9))


def scores(evaluated: Mapping[str, Sequence[float] | Floats]) -> list[str]:
    """The metrics that are scores, the one that is meant first, of metrics with these values.

    Those evaluated once only come last, since they say nothing of what became of the run.
    """
    ranked = []
    for metric, values in evaluated.items():
        finite = np.asarray(values, np.float64)[np.isfinite(values)]
        rank = score_rank(metric)
        if len(finite) and rank is not None:
            ranked.append((len(finite) < 2, rank, _stays_at_an_end(finite), -len(finite), _is_of_part(metric), metric))
    return [metric for *_, metric in sorted(ranked)]


def of_run(run: Run) -> list[str]:
    """The held-out scores of a run, the one that is meant first."""
    ranked = scores({metric: run.evaluations.of(metric).value for metric in run.evaluations.metrics})
    return sorted(ranked, key=lambda metric: metric != run.setting("outcome"))


def evaluations(run: Run, metric: str) -> Evaluated:
    """Every evaluation of a metric."""
    rows = run.evaluations.of(metric)
    return with_errors((int(rows.step[i]), at(rows, i)) for i in range(len(rows)))


def at(rows: Evaluations, i: int) -> Estimate:
    """The value of one row of a table of evaluations."""
    return Estimate(float(rows.value[i]), float(rows.se[i]), int(rows.n[i]), rows.flag[i])


def with_errors(evaluated: Iterable[tuple[int, Estimate]]) -> Evaluated:
    """Evaluations with a standard error estimated from neighbours, where none has one and there are FEWEST of them."""
    rows = tuple(evaluated)
    values = np.array([score.value for _, score in rows])
    finite = values[np.isfinite(values)]
    if len(finite) < FEWEST or any(math.isfinite(score.se) for _, score in rows):
        return rows
    error = math.sqrt(_variance_beside_a_jump(finite))
    return tuple((step, Estimate(score.value, error, 0, ESTIMATED)) for step, score in rows)


def _variance_beside_a_jump(values: Floats) -> float:
    """Variance of white noise from second differences of values (n,), without the two that one jump of the level makes
    where both are _JUMP × the others."""
    squares = np.square(np.diff(values, 2))
    largest = np.argsort(squares)[-2:]
    rest = np.delete(squares, largest)
    if len(rest) >= FEWEST and abs(int(np.diff(largest)[0])) == 1 and squares[largest].min() > _JUMP * rest.mean():
        return float(rest.mean()) / 6
    return second_difference_variance(values)


def difference(first: Estimate, last: Estimate) -> tuple[Direction, str]:
    """Which way the accuracies of two policies differ by more than chance explains, and why that is "unknown".

    Their difference has the standard error √(se₁² + se₂²) of independent evaluations. Where both used the same problems
    their errors mostly go the same way and this error is too large: a difference called beyond chance is, and one
    called within chance may still be real.
    """
    n = min(first.n, last.n)
    value = last.value - first.value
    if trusted(first) and trusted(last):
        error = math.hypot(first.se, last.se)
        verdict: Direction = "none" if abs(value) <= Z * error else "up" if value > 0 else "down"
        return verdict, ""
    reason = f"{n} problems are too few" if n < ENOUGH else "all problems have the same score"
    (low, high), (low_last, high_last) = interval(first), interval(last)
    if low_last > high:
        return "up", reason
    if high_last < low:
        return "down", reason
    return "unknown" if n < ENOUGH or not math.isfinite(value) else "none", reason


def name(metric: str) -> str:
    """A held-out metric as it is called in a sentence: pass@1 is the accuracy."""
    return "accuracy" if metric in ("pass@1", "accuracy") else visible(metric.removeprefix("component/"), 60)


def are_shares(values: Iterable[float]) -> bool:
    """Whether scores are shares, which are shown in per cent."""
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) >= 0 and max(finite) <= 1


def shown(value: float, shares: bool, digits: int = 0) -> str:
    """A score in per cent, or as a number."""
    return percent(value, digits) if shares else number(value)


def with_interval(score: Estimate, shares: bool) -> str:
    """A score with its 95 % interval in brackets, where it has one."""
    finite = math.isfinite(score.se) or score.n > 0
    return shown(score.value, shares, 1) + (f" ({shown_interval(score, shares)})" if finite else "")
