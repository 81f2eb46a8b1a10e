"""Scores of each arm on each task, and differences on the same problems.

An arm is a model, or several trainings that differ in their seed. Two arms are compared problem by problem; p-values of
all differences in one pass@k are adjusted together by Holm's method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import comb
from pathlib import Path

import numpy as np
from scipy.special import stdtr, stdtrit

from grposcope.core.errors import UserError
from grposcope.core.text import visible
from grposcope.instruments.evaluation import crossed_means
from grposcope.instruments.evaluation.crossed_means import FEW, LEVEL, POWER, Array, CrossedMean
from grposcope.instruments.evaluation.record import Completion, EvaluatedProblem, EvaluationRecord
from grposcope.maths.holm import holm
from grposcope.maths.pass_at_k import pass_at_k

Arms = Mapping[str, tuple[str, ...]]
"""Name of an arm -> its models."""


@dataclass(frozen=True)
class ArmScore:
    """One arm on one task, on the problems that every model of it was evaluated on.

    passes: pass@k by k. se_samples: by k, the part of the standard error that more completions of the same problems
    would take away, NaN where k is more than half of them. truncated, unread, failed: shares of the completions.
    reward, length: means. asked: whether the task tells which answers it cannot read.
    """

    arm: str
    task: str
    problems: int
    completions: int
    passes: Mapping[int, CrossedMean]
    se_samples: Mapping[int, float]
    truncated: CrossedMean
    unread: CrossedMean
    failed: float
    reward: float
    length: float
    asked: bool


@dataclass(frozen=True)
class ArmDifference:
    """pass@k of `second` − that of `first` on the problems of a task that both have. adjusted: p by Holm's method."""

    task: str
    k: int
    first: str
    second: str
    mean: CrossedMean
    adjusted: float = math.nan


@dataclass(frozen=True)
class EvaluationScores:
    """Scores and differences of an evaluation, of what is there so far. ks: of pass@k."""

    arms: Arms
    ks: tuple[int, ...]
    scores: tuple[ArmScore, ...]
    differences: tuple[ArmDifference, ...]


def _default_ks(samples: int) -> tuple[int, ...]:
    """pass@1, and pass@k for as many completions as are drawn."""
    return (1,) if samples == 1 else (1, samples)


def of_record(record: EvaluationRecord, ks: Sequence[int] = (), arms: Arms | None = None) -> EvaluationScores:
    """The scores of a folder, of what is there so far.

    ks: of pass@k, arms: by default as the folder is shown. UserError for a k that the completions do not give.
    """
    samples = record.plan.samples
    ks = tuple(ks) or record.view.ks or _default_ks(samples)
    for k in ks:
        if not 1 <= k <= samples:
            raise UserError(
                f"pass@{k} needs {k} completions of each problem, and there are {samples}; choose a smaller k"
            )
    named = arms or record.view.arms or {name: (name,) for name in record.plan.models}
    short = dict(zip(named, labels(list(named)), strict=True))
    scores: list[ArmScore] = []
    differences: list[ArmDifference] = []
    for task in record.plan.tasks:
        rows = {short[arm]: [record.rows.get((model, task), ()) for model in named[arm]] for arm in named}
        scores += [_score(arm, task, of_arm, ks) for arm, of_arm in rows.items()]
        for k in ks:
            differences += [
                ArmDifference(task, k, arm, two, _crossed_difference(*_common(rows[arm], rows[two], k)))
                for arm, two in combinations(rows, 2)
            ]
    shown = {short[arm]: models for arm, models in named.items()}
    return EvaluationScores(shown, ks, tuple(scores), _adjusted(differences, ks))


def labels(names: Sequence[str]) -> list[str]:
    """Short names, all different: the last part of a path, with as many parts before it as are needed."""
    parts = [Path(name).parts or (name,) for name in names]
    for length in range(1, max(map(len, parts), default=1) + 1):
        short = ["/".join(words[-length:]) for words in parts]
        telling = length > 1 or not any(name in ("model", ".", "..") for name in short)
        if telling and len(set(short)) == len(short):
            return [visible(name, 60) for name in short]
    return [visible(name, 120) for name in names]


def _score(arm: str, task: str, models: Sequence[Sequence[EvaluatedProblem]], ks: Sequence[int]) -> ArmScore:
    common = _indices(models)
    chosen = [[row for row in rows if row.index in common] for rows in models]
    completions = [completion for rows in chosen for row in rows for completion in row.completions]
    count = len(completions)
    return ArmScore(
        arm=arm,
        task=task,
        problems=len(common),
        completions=count,
        passes={k: _crossed_score(_values(chosen, k)) for k in ks},
        se_samples={k: _se_samples(chosen, k) for k in ks},
        truncated=_crossed_score(_shares(chosen, lambda completion: completion.truncated)),
        unread=_crossed_score(_shares(chosen, lambda completion: completion.verdict == "unread")),
        failed=sum(completion.verdict == "failed" for completion in completions) / count if count else math.nan,
        reward=math.fsum(completion.reward for completion in completions) / count if count else math.nan,
        length=sum(completion.tokens for completion in completions) / count if count else math.nan,
        asked=not any(completion.verdict == "wrong" and completion.answer is None for completion in completions),
    )


def _indices(models: Sequence[Sequence[EvaluatedProblem]]) -> set[int]:
    """Problems that every model was evaluated on."""
    return set.intersection(*({row.index for row in rows} for rows in models))


def _values(models: Sequence[Sequence[EvaluatedProblem]], k: int) -> crossed_means.Array:
    """pass@k of each model (S) on each problem (I)."""
    return np.array([[pass_at_k(len(row.completions), row.right, k) for row in rows] for rows in models]).reshape(
        len(models), -1
    )


def _shares(models: Sequence[Sequence[EvaluatedProblem]], holds: Callable[[Completion], bool]) -> crossed_means.Array:
    """Share of the completions of each model (S) on each problem (I) of which something holds."""
    shares = [[sum(map(holds, row.completions)) / len(row.completions) for row in rows] for rows in models]
    return np.array(shares).reshape(len(models), -1)


def _common(
    first: Sequence[Sequence[EvaluatedProblem]], second: Sequence[Sequence[EvaluatedProblem]], k: int
) -> tuple[crossed_means.Array, crossed_means.Array]:
    """The values of two arms on the problems that both have."""
    both = _indices([*first, *second])
    first_rows, two = ([[row for row in rows if row.index in both] for rows in arm] for arm in (first, second))
    return _values(first_rows, k), _values(two, k)


def _crossed_score(values: Array) -> CrossedMean:
    """The mean of scores in [0, 1], (S, I): S trainings or one model, I problems; no interval for I < 2."""
    mean = _mean([values], [1.0])
    if not math.isfinite(mean.se):
        return mean
    t = float(stdtrit(mean.df, (1 + LEVEL) / 2))
    share, per_problem = min(max(mean.value, 0.0), 1.0), values.mean(0)
    trials = share * (1 - share) / mean.se**2 if mean.se > 0 else math.inf
    if min(_told(per_problem), _told(1 - per_problem)) < FEW:
        trials = min(trials, float(mean.problems))
    low, high = _wilson(share, trials, t)
    detectable = math.sqrt(2) * (high - low) / (2 * t) * (t + float(stdtrit(mean.df, POWER)))
    return replace(mean, low=low, high=high, detectable=detectable)


def _crossed_difference(first: Array, second: Array) -> CrossedMean:
    """The mean of second − first on the same problems, (S, I) and (S', I); no interval for I < 2."""
    mean = _mean([second, first], [1.0, -1.0])
    if not math.isfinite(mean.se):
        return mean
    each = second.mean(0) - first.mean(0)
    nonzero = each[each != 0]
    centre, se = mean.value, mean.se
    if mean.trainings == 1 and _told(np.abs(each)) < FEW:
        centre = float(each.sum()) / (mean.problems + 2)
        se = math.sqrt(
            max((float(np.square(each).sum()) + 1) / (mean.problems + 2) - centre**2, 0) / (mean.problems + 2)
        )
    if mean.trainings == 1 and len(nonzero) < FEW:
        p = _sign_changes(nonzero)
    else:
        p = float(2 * stdtr(mean.df, -abs(centre / se))) if se > 0 else float(centre == 0)
    t = float(stdtrit(mean.df, (1 + LEVEL) / 2))
    low, high = max(centre - t * se, -1.0), min(centre + t * se, 1.0)
    return replace(mean, low=low, high=high, p=p, detectable=se * (t + float(stdtrit(mean.df, POWER))))


def _sign_changes(differences: Array) -> float:
    """Two-sided p of a sum of differences among all changes of their signs: McNemar's exact test where all are ±1."""
    if not len(differences):
        return 1.0
    sums = np.array(list(product((-1, 1), repeat=len(differences)))) @ differences
    return float((np.abs(sums) >= abs(differences.sum()) - 1e-9).mean())


def _mean(arms: list[Array], signs: list[float]) -> CrossedMean:
    """Σ sign × mean of the arm, with its variance: problems are common to the arms, trainings are not."""
    problems = arms[0].shape[1]
    trainings = max(len(arm) for arm in arms)
    each = sum((sign * arm.mean(0) for arm, sign in zip(arms, signs, strict=True)), np.zeros(problems))
    value = float(each.mean()) if problems else math.nan
    absent = CrossedMean(value, math.nan, math.nan, math.nan, math.nan, problems, trainings, math.nan, math.nan)
    if problems < 2:
        return absent
    of_problems = float(each.var(ddof=1)) / problems
    parts = [(of_problems, problems - 1)]
    own_parts: list[tuple[float, int]] = []
    for arm in arms:
        if (count := len(arm)) < 2:
            continue
        means = arm.mean(1)
        own = float(means.var(ddof=1)) / count
        rest = arm - means[:, None] - arm.mean(0) + arm.mean()
        freedom = (count - 1) * (problems - 1)
        own_parts.append((own, count - 1))
        parts.append((-float(np.square(rest).sum()) / freedom / arm.size, freedom))
    of_trainings, df_trainings = _summed(own_parts)
    total, df = _summed(parts + own_parts)
    for component in ((of_problems, problems - 1.0), (of_trainings, df_trainings)):
        total, df = max((total, df), component, key=lambda one: one[0])
    return replace(
        absent,
        se=math.sqrt(total),
        df=max(df, 1.0),
        se_problems=math.sqrt(of_problems),
        se_trainings=math.sqrt(of_trainings) if trainings > 1 else math.nan,
    )


def _told(distances: Array) -> float:
    """How many problems a sum of distances rests on: (Σd)²/Σd², their number where all are alike (Kish 1965)."""
    squares = float(np.square(distances).sum())
    return float(distances.sum()) ** 2 / squares if squares else 0.0


def _summed(parts: list[tuple[float, int]]) -> tuple[float, float]:
    """The sum of variances (or of what is taken off) and its degrees of freedom, by Satterthwaite."""
    total = sum(component for component, _ in parts)
    squares = sum(component**2 / freedom for component, freedom in parts)
    return total, total**2 / squares if squares else float(max((freedom for _, freedom in parts), default=1))


def _wilson(share: float, trials: float, t: float) -> tuple[float, float]:
    """Wilson's interval for a share of so many trials, with the quantile t; the share itself for infinitely many."""
    if math.isinf(trials):
        return share, share
    spread = t * math.sqrt(share * (1 - share) / trials + t**2 / (4 * trials**2))
    centre, scale = share + t**2 / (2 * trials), 1 + t**2 / trials
    return max((centre - spread) / scale, 0.0), min((centre + spread) / scale, 1.0)


def _se_samples(models: Sequence[Sequence[EvaluatedProblem]], k: int) -> float:
    within = [_pass_at_k_variance(len(row.completions), row.right, k) for rows in models for row in rows]
    return math.sqrt(max(math.fsum(within), 0)) / len(within) if within else math.nan


def _pass_at_k_variance(n: int, correct: int, k: int) -> float:
    """Unbiased estimate of the variance of `pass_at_k` over completions of this problem; NaN where n < 2k."""
    if n < 2 * k:
        return math.nan
    return (comb(n - correct, k) / comb(n, k)) ** 2 - comb(n - correct, 2 * k) / comb(n, 2 * k)


def _adjusted(differences: Sequence[ArmDifference], ks: Sequence[int]) -> tuple[ArmDifference, ...]:
    """The differences with p adjusted over all tasks and pairs, each k for itself."""
    by_k = {k: [difference for difference in differences if difference.k == k] for k in ks}
    adjusted = {
        id(difference): p
        for some in by_k.values()
        for difference, p in zip(some, holm([x.mean.p for x in some]), strict=True)
    }
    return tuple(replace(difference, adjusted=adjusted[id(difference)]) for difference in differences)
