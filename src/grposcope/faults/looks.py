"""When a growing run is looked at, and at which level: one schedule and one threshold for `diagnose` on the rows so
far, `watch`, the callback and `advise`. Method of this project; no publication.

At the scheduled looks, of 10, 20, 30, 45, 70 and 100 rows and then half as many again each time, a fault is present
where `diagnose` calls it present: its adjusted p-value is below LEVEL. Below LEAST rows facts alone are raised. Between
the scheduled looks a look at n rows may be asked for by anything, also by what was seen, so each number of rows from
LEAST on has a level of its own,

    LEVEL · LEAST / (n (n + 1)),        Σ over n ≥ LEAST = LEVEL.

By the union bound the chance that a run without faults has an alarm within n rows is at most LEVEL (K + 1), K being the
number of scheduled looks from LEAST rows on: 8 up to 500 rows, 15 up to 10,000. That is a bound, no estimate: tests are
adjusted for one another, looks at one run agree, and on sound runs far fewer are raised (benchmarks/diagnosis.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from grposcope.core.run import Evaluations, Groups, Run
from grposcope.faults.judge import LEVEL
from grposcope.signs.quantities import LEAST

FIRST = (10, 20, 30, 45, 70, 100)
"""Rows of the first scheduled looks; those below LEAST can only see facts."""

GROWTH = 1.5
"""Rows at a later scheduled look over those at the one before."""


def scheduled(rows: int) -> Iterator[int]:
    """The numbers of rows, at most `rows`, at which a look is scheduled."""
    yield from (least for least in FIRST if least <= rows)
    least = math.ceil(GROWTH * FIRST[-1])
    while least <= rows:
        yield least
        least = math.ceil(GROWTH * least)


def passes(before: int, rows: int) -> bool:
    """Whether a scheduled look lies after `before` rows and not after `rows`."""
    return max(scheduled(rows), default=0) > before


def level_of_look(before: int, rows: int, level: float = LEVEL) -> float:
    """The level of a look at `rows` rows, the last having been at `before`: the whole of it at a scheduled one; 0 below
    LEAST rows, where facts alone are raised, since many a sound run begins with groups that are dead or cut."""
    if rows < LEAST:
        return 0.0
    if passes(before, rows):
        return level
    return level * LEAST / (rows * (rows + 1))


def first_rows(run: Run, rows: int, status: str = "") -> Run:
    """The run as it was after its first `rows` rows, without the outcome that its trainer wrote at the end.

    status: in place of its own, where all of its rows are asked for; else it is running.
    """
    if rows >= run.steps:
        return _with_status(run, status) if status else run
    last = float(run.table["step"][rows - 1])
    return replace(
        run,
        meta=replace(run.meta, status="running"),
        table={name: column[:rows] for name, column in run.table.items()},
        groups=_until(run.groups, last),
        evaluations=_evaluations_until(run.evaluations, last),
        rollouts={step: run.rollouts[step] for step in run.rollouts if step <= last},
        phase=None, summary=None,
        segments=tuple(segment for segment in run.segments if segment.table["step"][0] <= last),
        scopes={name: first_rows(scope, int((scope.table["step"] <= last).sum()))
                for name, scope in run.scopes.items() if (scope.table["step"] <= last).any()},
    )  # fmt: skip


def _with_status(run: Run, status: str) -> Run:
    """The run, and each of its scopes, with another status."""
    scopes = {name: _with_status(scope, status) for name, scope in run.scopes.items()}
    return replace(run, meta=replace(run.meta, status=status), scopes=scopes)


def _until(groups: Groups, last: float) -> Groups:
    count = int(np.searchsorted(groups.step, last, side="right")) if (np.diff(groups.step) >= 0).all() else len(groups)
    ends = int(groups.offsets[count]) if len(groups) else 0
    return replace(
        groups, step=groups.step[:count], problem=groups.problem[:count], rewards=groups.rewards[:ends],
        offsets=groups.offsets[: count + 1],
        truncated=None if groups.truncated is None else groups.truncated[:ends],
        components={name: values[:ends] for name, values in groups.components.items()},
        lengths=None if groups.lengths is None else groups.lengths[:ends],
    )  # fmt: skip


def _evaluations_until(evaluations: Evaluations, last: float) -> Evaluations:
    rows = zip(evaluations.step.tolist(), evaluations.metric, evaluations.value.tolist(), evaluations.se.tolist(),
               evaluations.n.tolist(), evaluations.flag, strict=True)  # fmt: skip
    return Evaluations.of_rows([row for row in rows if row[0] <= last])
