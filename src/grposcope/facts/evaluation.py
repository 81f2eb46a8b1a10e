"""What an evaluation says: scores of each arm on each task, differences on the same problems, and what they can tell.

An arm is a model, or several trainings that differ in their seed. Two arms are compared problem by problem; p-values of
all differences in one pass@k are adjusted together by Holm's method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.diagnosis.diagnose import holm
from grposcope.errors import UserError
from grposcope.formatting import listed, number, percent, span, table, visible
from grposcope.runs.evaluation import Completion, EvaluatedProblem, EvaluationRecord
from grposcope.ustat import crossed
from grposcope.ustat.crossed import CrossedMean
from grposcope.ustat.pass_at_k import pass_at_k, variance

LEVEL = 0.05
"""Adjusted p-value below which two arms are said to differ."""

LITTLE = 0.1
"""A set of problems on which only larger differences than this would be found can tell little."""

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
class EvaluationFacts:
    """What is said of an evaluation. sentences: its conclusions; notes: what was left out or cannot be told."""

    arms: Arms
    tasks: tuple[str, ...]
    ks: tuple[int, ...]
    samples: int
    scores: tuple[ArmScore, ...]
    differences: tuple[ArmDifference, ...]
    sentences: tuple[str, ...]
    notes: tuple[str, ...]
    missing: int

    def document(self) -> dict[str, Any]:
        """The facts as JSON."""
        return {
            "arms": {name: list(models) for name, models in self.arms.items()},
            "samples": self.samples,
            "missing": self.missing,
            "scores": [_score_document(score) for score in self.scores],
            "differences": [
                {**{name: value for name, value in vars(one).items() if name != "mean"}, **vars(one.mean)}
                for one in self.differences
            ],
            "sentences": list(self.sentences),
            "notes": list(self.notes),
        }


def default_ks(samples: int) -> tuple[int, ...]:
    """pass@1, and pass@k for as many completions as are drawn."""
    return (1,) if samples == 1 else (1, samples)


def of_record(record: EvaluationRecord, ks: Sequence[int] = (), arms: Arms | None = None) -> EvaluationFacts:
    """The facts of a folder, of what is there so far.

    ks: of pass@k, arms: by default as the folder is shown. UserError for a k that the completions do not give.
    """
    samples = record.plan.samples
    ks = tuple(ks) or record.view.ks or default_ks(samples)
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
                ArmDifference(task, k, one, two, crossed.difference(*_common(rows[one], rows[two], k)))
                for one, two in combinations(rows, 2)
            ]
    adjusted = _adjusted(differences, ks)
    return EvaluationFacts(
        arms={short[arm]: models for arm, models in named.items()},
        tasks=record.plan.tasks,
        ks=ks,
        samples=samples,
        scores=tuple(scores),
        differences=adjusted,
        sentences=tuple(_sentences(scores, adjusted, ks)),
        notes=tuple(_notes(record, scores)),
        missing=record.missing,
    )


def labels(names: Sequence[str]) -> list[str]:
    """Short names, all different: the last part of a path, with as many parts before it as are needed."""
    parts = [Path(name).parts or (name,) for name in names]
    for length in range(1, max(map(len, parts), default=1) + 1):
        short = ["/".join(part[-length:]) for part in parts]
        telling = length > 1 or not any(one in ("model", ".", "..") for one in short)
        if telling and len(set(short)) == len(short):
            return [visible(one, 60) for one in short]
    return [visible(name, 120) for name in names]


def _score(arm: str, task: str, models: Sequence[Sequence[EvaluatedProblem]], ks: Sequence[int]) -> ArmScore:
    common = _indices(models)
    chosen = [[row for row in rows if row.index in common] for rows in models]
    completions = [one for rows in chosen for row in rows for one in row.completions]
    count = len(completions)
    return ArmScore(
        arm=arm,
        task=task,
        problems=len(common),
        completions=count,
        passes={k: crossed.score(_values(chosen, k)) for k in ks},
        se_samples={k: _se_samples(chosen, k) for k in ks},
        truncated=crossed.score(_shares(chosen, lambda one: one.truncated)),
        unread=crossed.score(_shares(chosen, lambda one: one.verdict == "unread")),
        failed=sum(one.verdict == "failed" for one in completions) / count if count else math.nan,
        reward=math.fsum(one.reward for one in completions) / count if count else math.nan,
        length=sum(one.tokens for one in completions) / count if count else math.nan,
        asked=not any(one.verdict == "wrong" and one.answer is None for one in completions),
    )


def _indices(models: Sequence[Sequence[EvaluatedProblem]]) -> set[int]:
    """Problems that every model was evaluated on."""
    return set.intersection(*({row.index for row in rows} for rows in models))


def _values(models: Sequence[Sequence[EvaluatedProblem]], k: int) -> crossed.Array:
    """pass@k of each model (S) on each problem (I)."""
    return np.array([[pass_at_k(len(row.completions), row.right, k) for row in rows] for rows in models]).reshape(
        len(models), -1
    )


def _shares(models: Sequence[Sequence[EvaluatedProblem]], holds: Callable[[Completion], bool]) -> crossed.Array:
    """Share of the completions of each model (S) on each problem (I) of which something holds."""
    shares = [[sum(map(holds, row.completions)) / len(row.completions) for row in rows] for rows in models]
    return np.array(shares).reshape(len(models), -1)


def _common(
    first: Sequence[Sequence[EvaluatedProblem]], second: Sequence[Sequence[EvaluatedProblem]], k: int
) -> tuple[crossed.Array, crossed.Array]:
    """The values of two arms on the problems that both have."""
    both = _indices([*first, *second])
    one, two = ([[row for row in rows if row.index in both] for rows in arm] for arm in (first, second))
    return _values(one, k), _values(two, k)


def _se_samples(models: Sequence[Sequence[EvaluatedProblem]], k: int) -> float:
    within = [variance(len(row.completions), row.right, k) for rows in models for row in rows]
    return math.sqrt(max(math.fsum(within), 0)) / len(within) if within else math.nan


def _adjusted(differences: Sequence[ArmDifference], ks: Sequence[int]) -> tuple[ArmDifference, ...]:
    """The differences with p adjusted over all tasks and pairs, each k for itself."""
    by_k = {k: [one for one in differences if one.k == k] for k in ks}
    adjusted = {
        id(one): p for some in by_k.values() for one, p in zip(some, holm([x.mean.p for x in some]), strict=True)
    }
    return tuple(replace(one, adjusted=adjusted[id(one)]) for one in differences)


def _sentences(scores: Sequence[ArmScore], differences: Sequence[ArmDifference], ks: Sequence[int]) -> list[str]:
    """What differs, and for which tasks too few problems were asked to tell."""
    k = ks[0]
    said = []
    here = [one for one in differences if one.k == k and not math.isnan(one.adjusted)]
    apart = [one for one in here if one.adjusted < LEVEL]
    for one in apart:
        better, worse = (one.second, one.first) if one.mean.value > 0 else (one.first, one.second)
        low, high = sorted((abs(one.mean.low), abs(one.mean.high)))
        said.append(
            f"{one.task}: {better} is better than {worse} by {points(abs(one.mean.value))} points of pass@{k} "
            f"(95 % interval {points(low)} to {points(high)}, adjusted p = {one.adjusted:.2g})."
        )
    if here and not apart:
        said.append(
            f"No two models differ in pass@{k} beyond noise (least adjusted p = "
            f"{number(min(one.adjusted for one in here))}, {len(here)} compared)."
        )
    return said + _too_small(scores, differences, k)


def _too_small(scores: Sequence[ArmScore], differences: Sequence[ArmDifference], k: int) -> list[str]:
    """A sentence for each task whose problems can tell models apart only where these differ a lot."""
    said = []
    for task in dict.fromkeys(score.task for score in scores):
        seen = [one.mean.detectable for one in differences if one.task == task and one.k == k]
        guessed = [score.passes[k].detectable for score in scores if score.task == task]
        least = max((value for value in (seen or guessed) if math.isfinite(value)), default=math.nan)
        problems = min(score.problems for score in scores if score.task == task)
        if problems < 2:
            said.append(f"{task}: {problems} problem{'' if problems == 1 else 's'} cannot tell models apart.")
        elif least > LITTLE:
            about = "" if seen else ", if what they get right were unrelated"
            seeds = [one.mean for one in differences if one.task == task and one.k == k and one.mean.trainings > 1]
            few = f"{problems} problems"
            if any(mean.se_trainings > mean.se_problems for mean in seeds):
                few += f" and {min(mean.trainings for mean in seeds)} trainings, whose seeds make most of the noise,"
            said.append(
                f"{task}: {few} tell little: models that differ by less than {points(least)} points of "
                f"pass@{k} would be told apart in fewer than 4 of 5 such evaluations{about}."
            )
    return said


def _notes(record: EvaluationRecord, scores: Sequence[ArmScore]) -> list[str]:
    """What was left out, could not be read, or is not known."""
    said = []
    if record.missing:
        said.append(f"{record.missing:,} problems are not evaluated yet; give the same command again to go on.")
    for name, task in record.tasks.items():
        if task.left_out:
            reasons = listed([f"{count} {reason}" for reason, count in task.left_out.items()])
            said.append(f"{name}: rows of the file that cannot be graded are left out: {reasons}.")
        if record.plan.split == "heldout" and record.plan.limit is None and name.startswith("jsonl:"):
            said.append(f"{name}: the {task.of} problems held out by a hash; the split `all` takes the whole file.")
    for score in scores:
        if score.failed:
            said.append(f"{score.task}, {score.arm}: grading failed on {percent(score.failed, 1)} of the completions, "
                        "which count as wrong; their rows say why.")  # fmt: skip
        if score.completions and not score.asked:
            said.append(f"{score.task}: its reward function does not say which answers it could not read.")
    said += [
        f"{score.task}, {score.arm}: {percent(score.truncated.value)} of the completions were cut at the longest "
        "length; a larger one may raise the score."
        for score in scores
        if score.truncated.value > 0.2
    ]
    return list(dict.fromkeys(said))


def points(value: float) -> str:
    """A share as percentage points."""
    return number(float(f"{100 * value:.3g}")) if math.isfinite(value) else "unknown"


def header(ks: Sequence[int]) -> tuple[str, ...]:
    """Titles of the columns of `cells`."""
    return ("task", "model", "problems", *(f"pass@{k}" for k in ks), "cut off", "unread", "tokens")


def cells(score: ArmScore) -> tuple[str, ...]:
    """A row of the table of scores as text."""
    unread = percent(score.unread.value, 1) if score.asked else "not told"
    return (
        visible(score.task, 60),
        score.arm,
        f"{score.problems:,}",
        *(shown(mean) for mean in score.passes.values()),
        percent(score.truncated.value, 1),
        unread,
        number(score.length),
    )


def shown(mean: CrossedMean) -> str:
    """A score with its 95 % interval, in per cent."""
    if not math.isfinite(mean.value):
        return "none yet"
    interval = f" ({span(mean.low, mean.high, lambda x: percent(x, 1))})" if math.isfinite(mean.low) else ""
    return f"{percent(mean.value, 1)}{interval}"


DIFFERENCES = ("task", "models", "pass@k", "difference in points (95 %)", "adjusted p", "detectable")
"""Titles of the columns of `difference_cells`."""


def difference_cells(one: ArmDifference) -> tuple[str, ...]:
    """A row of the table of differences as text."""
    mean = one.mean
    interval = f" ({span(100 * mean.low, 100 * mean.high, _signed)})" if math.isfinite(mean.low) else ""
    return (
        visible(one.task, 60),
        f"{one.second} − {one.first}",
        f"pass@{one.k}",
        f"{_signed(100 * mean.value)}{interval}" if math.isfinite(mean.value) else "none yet",
        "" if math.isnan(one.adjusted) else f"{one.adjusted:.2g}",
        points(mean.detectable),
    )


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def text(facts: EvaluationFacts) -> str:
    """Everything for a terminal."""
    parts = [table([header(facts.ks), *map(cells, facts.scores)])]
    if facts.differences:
        parts.append(table([DIFFERENCES, *map(difference_cells, facts.differences)]))
    parts += ["\n".join(some) for some in (facts.sentences, facts.notes) if some]
    return "\n\n".join(parts)


def _score_document(score: ArmScore) -> dict[str, Any]:
    passes = {f"pass@{k}": {**vars(mean), "se_samples": score.se_samples[k]} for k, mean in score.passes.items()}
    plain = ("arm", "task", "problems", "completions", "failed", "reward", "length")
    unread = vars(score.unread) if score.asked else None
    return {**{name: getattr(score, name) for name in plain}, **passes, "truncated": vars(score.truncated),
            "unread": unread}  # fmt: skip
