"""Held-out evaluations of a run, of whichever trainer: which score is meant, its values with errors, and its name.

Where a log gives no standard error, that of one evaluation is estimated from second differences of neighbouring
evaluations (`diagnosis.outcome.second_difference_variance`); n is 0 then, and the flag says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from grposcope.diagnosis.heldout import score_rank
from grposcope.diagnosis.outcome import FEWEST, second_difference_variance
from grposcope.facts.intervals import shown_interval
from grposcope.formatting import number, percent, visible
from grposcope.records import Estimate
from grposcope.runs.run import Evaluations, Run

Evaluated = tuple[tuple[int, Estimate], ...]
"""(step, score) of every evaluation, in order."""

ESTIMATED = "no standard error in the log; this one is from neighbouring evaluations"
"""Flag of a score whose standard error is estimated."""


def scores(counts: Mapping[str, int]) -> list[str]:
    """The metrics that are scores, the one that is meant first, of metrics with this many evaluations each."""
    ranked = [(score_rank(name), -count, name) for name, count in counts.items() if count]
    return [name for rank, _, name in sorted((r, c, n) for r, c, n in ranked if r is not None)]


def of_run(run: Run) -> list[str]:
    """The held-out scores of a run, the one that is meant first."""
    return scores({name: len(run.evaluations.of(name)) for name in run.evaluations.metrics})


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
    error = math.sqrt(second_difference_variance(finite))
    return tuple((step, Estimate(score.value, error, 0, ESTIMATED)) for step, score in rows)


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
    known = math.isfinite(score.se) or score.n > 0
    return shown(score.value, shares, 1) + (f" ({shown_interval(score, shares)})" if known else "")
