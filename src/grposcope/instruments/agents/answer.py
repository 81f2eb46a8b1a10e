"""Turns, calls, failures and stop reasons of the rollouts of a run, and what its turns are paid.

What rollouts with turns say: the reward by turns, what ended them, and whether the update draws to more turns.

Covariance of a quantity with the reward inside groups: where the update of a group draws it.

For rollouts of a group, Σ (x − x̄)(r − r̄)/(G − 1) is an unbiased estimate of Cov(x, r) for its prompt. Its mean over
groups is what a leave-one-out update gives to x to first order, if x were a linear feature of the policy: above 0, the
policy is drawn to more of it. The standard error is that of the mean over groups.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.core.answer import Answer, Table
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.metrics import metric
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Run, labels
from grposcope.core.text import number, percent
from grposcope.instruments.agents import INSTRUMENT
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.render.curves import curve

LOGGED = (
    "agent/turns", "agent/turns_max", "agent/calls", "agent/call_failures", "agent/bad_calls", "agent/stop_environment",
    "agent/stop_turns", "truncated", "agent/errors", "agent/rows", "agent/environment_tokens", "agent/seconds_tools",
)  # fmt: skip
"""Metrics of the table, in its order."""

DRAWN = ("agent/turns", "agent/calls", "agent/call_failures", "agent/stop_turns", "agent/errors")
"""Metrics with a curve."""

STOPS = {
    "eos": "the policy ended it", "length": "limit on tokens", "turns": "limit on turns",
    "tool": "a call was not answered", "environment": "the environment ended it",
    "stop": "stop string", "error": "failure", "aborted": "taken back",
}  # fmt: skip
"""Reason of `core.rollouts.STOPS` -> how it is called."""

_OF_TOOL = re.compile(r"tools/(?P<tool>[^/]+)/(?P<what>call_total|failure_total|latency_s)")


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """What the turns of each run do; nothing for runs whose rollouts have one turn and no calls."""
    told = {label: (run, _facts_of(run)) for label, run in zip(labels(runs), runs, strict=True)}
    told = {label: (run, seen) for label, (run, seen) in told.items() if seen is not None or _logged(run)}
    if not told:
        return []
    several = len(runs) > 1
    sentences = [f"{label}: {_sentence(run, seen)}" if several else _sentence(run, seen)
                 for label, (run, seen) in told.items()]  # fmt: skip
    tables = [table for label, (run, seen) in told.items() for table in _tables(run, seen, label if several else "")]
    figures = [drawn for name in DRAWN if (drawn := curve(name, runs)) is not None]
    document = {label: _document(run, seen) for label, (run, seen) in told.items()}
    return [Answer("agents", INSTRUMENT.question, "told", sentences[0], text=sentences[1:], tables=tables,
                   figures=figures, document=document)]  # fmt: skip


def _logged(run: Run) -> list[str]:
    """The metrics of LOGGED that a run of an agent has; none where it logs neither several turns nor calls."""
    there = [name for name in LOGGED if name in run.table and np.isfinite(run.table[name]).any()]
    least = {"agent/turns": 1.0, "agent/calls": 0.0}
    return there if any(np.nanmax(run.table[name]) > least[name] for name in least if name in there) else []


def _sentence(run: Run, seen: _TurnFacts | None) -> str:
    """Turns and calls of the run, and where the update draws them."""
    parts = []
    for name, what in (("agent/turns", "turns"), ("agent/calls", "tool calls")):
        if name in _logged(run):
            first, last = _levels(run, name)
            parts.append(f"{number(first)} {what} per rollout at first and {number(last)} at last")
    logged = f"The policy took {' and '.join(parts)}." if parts else "Rollouts have several turns."
    return logged if seen is None else f"{logged} {_drawn(seen)}"


def _drawn(seen: _TurnFacts) -> str:
    """Whether rollouts of more turns are paid more than their siblings."""
    cov = seen.drawn
    said = f"Cov(turns, reward) {number(cov.value)} ± {number(cov.se)} within groups"
    if not np.isfinite(cov.value) or not np.isfinite(cov.se) or abs(cov.value) < 2 * cov.se or cov.value == 0:
        return f"Rollouts of more turns are not paid differently from their siblings ({said})."
    more = "more" if cov.value > 0 else "less"
    return f"Rollouts of more turns are paid {more} than their siblings ({said}), so that the update draws to " \
        f"{'more' if cov.value > 0 else 'fewer'} turns."  # fmt: skip


def _levels(run: Run, name: str) -> tuple[float, float]:
    values = run.table[name]
    values = values[np.isfinite(values)]
    return float(values[level.rows(len(values), EARLY)].mean()), float(values[level.rows(len(values), LATE)].mean())


def _tables(run: Run, seen: _TurnFacts | None, label: str) -> list[Table]:
    beside = f", {label}" if label else ""
    tables = []
    if names := _logged(run):
        rows: list[tuple[str, ...]] = []
        for name in names:
            shown = percent if metric(name).unit == "share" else number
            first, last = _levels(run, name)
            rows.append((metric(name).title, shown(first), shown(last), run.keys.get(name, name)))
        caption = "Means over the first 15% and the last 20% of the rows."
        tables.append(Table(f"Turns and tools{beside}", ("", "at first", "at last", "logged as"), rows, caption))
    if tools := _by_tool(run):
        tables.append(Table(f"By tool{beside}", ("tool", "calls", "failed", "seconds"), tools, "Sums over the run."))
    if seen is not None:
        first, last = seen.steps
        caption = f"Of {seen.rollouts:,} rollouts of steps {first:,} to {last:,}; ± is a standard error."
        header = ("rollouts", "share", "mean reward")
        tables.append(
            Table(f"Reward by turns{beside}", ("turns", *header), [_row(*own) for own in seen.by_turns], caption)
        )
        if seen.by_stop:
            rows = [_row(STOPS.get(own[0], own[0]), *own[1:]) for own in seen.by_stop]
            tables.append(Table(f"What ended the rollouts{beside}", ("", *header), rows, caption))
    return tables


def _row(what: str, count: int, share: float, reward: Estimate) -> tuple[str, ...]:
    return what, f"{count:,}", percent(share), _with_error(reward)


def _with_error(estimate: Estimate) -> str:
    error = f" ± {number(estimate.se)}" if np.isfinite(estimate.se) else ""
    return f"{number(estimate.value)}{error}"


def _by_tool(run: Run) -> list[tuple[str, ...]]:
    """Calls, share that failed and mean seconds of each tool, where a trainer logs them."""
    curves: dict[str, dict[str, np.ndarray]] = {}
    for key, values in run.table.items():
        if match := _OF_TOOL.fullmatch(key):
            curves.setdefault(match["tool"], {})[match["what"]] = values[np.isfinite(values)]
    rows: list[tuple[str, ...]] = []
    for tool, own in curves.items():
        calls = float(own.get("call_total", np.zeros(0)).sum())
        failed = own.get("failure_total")
        seconds = own.get("latency_s")
        rows.append((
            tool, f"{calls:,.0f}", "" if failed is None or not calls else percent(float(failed.sum()) / calls),
            "" if seconds is None or not len(seconds) else number(float(seconds.mean())),
        ))  # fmt: skip
    return rows


def _document(run: Run, seen: _TurnFacts | None) -> dict[str, Any]:
    levels = {name: dict(zip(("first", "last"), _levels(run, name), strict=True)) for name in _logged(run)}
    return {"logged": levels, "rollouts": None if seen is None else asdict(seen)}


STEPS = 10
"""Last steps whose rollouts are taken."""

_PaidBy = tuple[str, int, float, Estimate]
"""What some rollouts have in common, how many they are, their share, and their reward."""

MOST = 12
"""Rows of the table of turns; rollouts of more turns share the last."""


@dataclass(frozen=True)
class _TurnFacts:
    """What the rollouts of some steps say of their turns.

    steps: first and last. by_turns: rollouts by the turns that they took; by_stop: by what ended them. drawn:
    Cov(turns, reward) within groups, calls: the same of tool calls, None where they are not known. rollouts: how many.
    """

    steps: tuple[int, int]
    by_turns: tuple[_PaidBy, ...]
    by_stop: tuple[_PaidBy, ...]
    drawn: Estimate
    calls: Estimate | None
    rollouts: int


def _rows(run: Run, step: int) -> Sequence[Rollout]:
    """The rollouts of a step; none where their file is damaged or a package is missing, which the viewer says."""
    try:
        return run.rollouts[step]
    except UserError:
        return ()


def _facts_of(run: Run) -> _TurnFacts | None:
    """The facts of the last rollouts of a run; None where they have one turn, or their turns are not known."""
    steps = sorted(run.rollouts)[-STEPS:]
    rows = [(step, row) for step in steps for row in _rows(run, step) if math.isfinite(row.reward)]
    counts = [row.turn_count for _, row in rows]
    if not rows or any(count is None for count in counts) or max(count or 0 for count in counts) < 2:
        return None
    own = [row for _, row in rows]
    turns = np.array(counts, np.float64)
    rewards = np.array([row.reward for row in own])
    groups = [(step, row.group) for step, row in rows]
    made = [row.calls for row in own]
    calls = None if any(count is None for count in made) or not any(made) else \
        _covariance_in_groups(np.array(made, np.float64), rewards, groups)  # fmt: skip
    top = min(int(turns.max()), MOST)
    by_turns = [(f"{turn}" if turn < top or turns.max() <= top else f"{turn} or more", np.minimum(turns, top) == turn)
                for turn in range(int(turns.min()), top + 1)]  # fmt: skip
    return _TurnFacts(
        (steps[0], steps[-1]),
        tuple(_paid(what, own, rewards, chosen) for what, chosen in by_turns if chosen.any()),
        _by_stop(own, rewards),
        _covariance_in_groups(turns, rewards, groups),
        calls,
        len(own),
    )


def _by_stop(rows: Sequence[Rollout], rewards: np.ndarray) -> tuple[_PaidBy, ...]:
    words = np.array([row.stop or "not said" for row in rows])
    if (words == "not said").all():
        return ()
    names, counts = np.unique(words, return_counts=True)
    order = names[np.argsort(-counts, kind="stable")].tolist()
    return tuple(_paid(name, rows, rewards, words == name) for name in order)


def _paid(what: str, rows: Sequence[Rollout], rewards: np.ndarray, chosen: np.ndarray) -> _PaidBy:
    return (what, int(chosen.sum()), float(chosen.mean()), Estimate.mean(rewards[chosen].tolist()))


Floats = NDArray[np.float64]


def _covariance_in_groups(
    values: Sequence[float] | Floats, rewards: Sequence[float] | Floats, group: Sequence[object]
) -> Estimate:
    """Mean over groups of two or more rollouts of the covariance of values (n,) and rewards (n,); group (n,): ids.

    Rollouts with a value or reward that is not finite are left out. NaN, with a flag, without a group of two.
    """
    x, r = np.asarray(values, np.float64), np.asarray(rewards, np.float64)
    members: dict[object, list[int]] = {}
    for index in np.flatnonzero(np.isfinite(x) & np.isfinite(r)).tolist():
        members.setdefault(group[index], []).append(index)
    covariances = [
        float((x[places] - x[places].mean()) @ (r[places] - r[places].mean()) / (len(places) - 1))
        for places in members.values()
        if len(places) > 1
    ]
    if not covariances:
        return Estimate(float("nan"), float("nan"), 0, "no group of two rollouts")
    return Estimate.mean(covariances)
