"""One row per optimiser step: rows of one step are joined or averaged, and of a restarted run the last attempt is kept.

*Programs.* An asynchronous trainer and what draws its rollouts log side by side, and one is ahead of the other, so the
step falls all the time although nobody restarted. Programs are told apart by their keys: rows that have a metric in
common are of one program. A step that falls within the rows of one program is a restart.

*Parts and micro-batches.* Rows of one step that do not contradict each other are parts of one row (TensorBoard, W&B).
Rows that do are averaged if the user says so, or if they are plainly micro-batches: every step has the same number of
rows (the last may have fewer), and no place within the step has other rewards than the rest (F test at 0.001), as
interleaved runs have. A few that contradict each other are restarts. Of anything between, the user is asked.

*Copies.* A metric measured at every k-th row and written in all of them says nothing new in between, and k copies of a
value look like a run of little noise. The values of such a column change only from one block of k rows to the next. A
column of few different values may do so by chance, with probability k^−changes for each of k places where the blocks
may begin; below CHANCE, the copies are taken out.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import WRITTEN_NAN, WRITTEN_NULL
from grposcope.core.not_finite import is_written_nan, is_written_null
from grposcope.core.run import Bools, Floats, Ints, Segment
from grposcope.core.text import visible
from grposcope.logs.hints import UndecidedError
from grposcope.logs.keys import CLOCKS, TIMES
from grposcope.logs.table import LogTable

FEWEST = 3
"""Steps below which rows of one step are not plainly micro-batches."""

RARE = 0.1
"""Share of repeated rows up to which they are those of restarts."""

DIFFER = 1e-3
"""p-value below which places within the step have different rewards."""

CHANCE = 1e-4
"""Chance below which blocks of equal values are no accident."""

FEWEST_STAIRS, BROKEN = 10, 0.2
"""Stairs of a staircase with gaps, at least, and the share of them that may be shorter or longer than the others."""

LONGEST = 1000
"""Rows of a block."""

MOVES = 0.5
"""Share of the blocks that must differ from the block before: a metric that stands still is no staircase."""

_SCHEDULED = re.compile(
    r"(?:^|[/_])(?:lr|learning_rate|epoch|version|coef|beta|temperature|off_policy|async|stale|lag(?:$|[/_]))", re.I
)
"""Keys that are set, or count whole versions of the weights: equal values of these are no copies."""


def _rows_by_step(table: LogTable) -> LogTable:
    """The rows of training with a step, those of one step as one where that may be.

    UserError where there is none; UndecidedError where rows of one step are neither parts of one nor micro-batches.
    """
    lost = (table.busy | table.scored | table.held_out) & ~np.isfinite(table.step)
    if lost.any():
        table = table.noting(
            f"{int(lost.sum())} rows have no step, the first in {table.log.place} {table.lines[lost][0]}, and were "
            "left out"
        )
    rows = np.flatnonzero(table.busy & ~lost)
    if not len(rows):
        raise UserError(f"{table.log.source}: no row has a step and a training metric; give the trainer's own log")
    columns = {"step": table.step, **{key: table.columns[key] for key in table.training}}
    if len(rows) < len(table.lines):
        columns = {key: column[rows] for key, column in columns.items()}
    places, clocks = table.lines[rows], frozenset(key for key in columns if key in CLOCKS or key.startswith(TIMES))
    falls = bool((np.diff(columns["step"]) < 0).any())
    if falls and (order := _in_order_of_steps(columns, clocks)) is not None:
        columns, places = {key: column[order] for key, column in columns.items()}, places[order]
        table = table.noting("rows of several programs, one ahead of the others, were joined by step")
    rewards = [columns[key] for key in table.rewarding if key in columns]
    if (np.diff(columns["step"]) != 0).all():
        return replace(table, table=columns, places=places)
    joined, starts, notes = _merged_steps(
        columns, clocks, rewards, table.hints.average or bool(table.parts), str(table.log.source)
    )
    return table.noting(*notes, table=joined, places=places[starts])


def _without_copies(table: LogTable) -> LogTable:
    """The table without values that were copied onto the steps after them."""
    copied = {}
    for key, column in table.table.items():
        if key not in CLOCKS and not _SCHEDULED.search(key) and (rows := copies(column)) is not None:
            copied[key] = np.where(rows, np.nan, column)
    if not copied:
        return table
    some = ", ".join(visible(key, 40) for key in list(copied)[:4]) + (", …" if len(copied) > 4 else "")
    count = "a key" if len(copied) == 1 else f"{len(copied)} keys"
    note = f"values of {count} were copied onto the steps after them ({some}); each counts once"
    return table.noting(note, table={**table.table, **copied})


def _last_attempt_of_every_step(table: LogTable) -> LogTable:
    """The last attempt of every step, and all attempts as segments; UserError for a step that falls all the time."""
    step, source = table.table["step"], table.log.place
    cuts = np.flatnonzero(np.diff(step) <= 0) + 1
    if not len(cuts):
        return table
    if len(cuts) > 20 and len(cuts) > 0.2 * len(step):
        raise UserError(
            f"{table.log.source}: the step goes back {len(cuts)} times in {len(step)} rows, so this is not one run; "
            "give the metrics of one run, one row per step"
        )
    edges = [0, *cuts.tolist(), len(step)]
    keep = np.zeros(len(step), bool)
    limit = math.inf
    for begin, end in reversed(list(itertools.pairwise(edges))):
        keep[begin:end] = step[begin:end] < limit
        limit = min(limit, step[begin])
    times = "once" if len(cuts) == 1 else f"{len(cuts)} times"
    note = (
        f"restarted {times}, first in {source} {table.places[cuts[0]]} (step {step[cuts[0]]:g} "
        f"after {step[cuts[0] - 1]:g}): the last attempt of every step is used, {int(keep.sum())} of "
        f"{len(step)} rows"
    )
    segments = tuple(
        Segment({key: column[begin:end] for key, column in table.table.items()}, f"{source} {table.places[begin]}")
        for begin, end in itertools.pairwise(edges)
    )
    columns = {key: column[keep] for key, column in table.table.items()}
    return table.noting(note, table=columns, segments=segments)


def _merged_steps(
    table: dict[str, Floats], clocks: Collection[str], rewards: Sequence[Floats], average: bool, source: str
) -> tuple[dict[str, Floats], Ints, tuple[str, ...]]:
    """A table with a row per step, the first row of each in `table`, and notes on what was done.

    clocks: columns that may differ within a step. rewards: columns (N,).
    average: average them whatever they are. UndecidedError where they contradict each other too often for restarts and
    are not plainly micro-batches.
    """
    first = np.append(True, np.diff(table["step"]) != 0)
    starts = np.flatnonzero(first)
    clash = _contradictions(table, clocks, starts)
    if not clash.any():
        joined = {key: _joined(column, starts) for key, column in table.items()}
        return joined, starts, _joining(table["step"], first)
    sizes = np.diff(np.append(starts, len(first)))
    plain = _micro_batches(rewards, sizes)
    if average or plain:
        why = "as asked" if average else f"they are micro-batches, {sizes[0]} per step"
        note = f"the rows of a step were averaged, {len(first)} rows to {len(starts)} steps: {why}"
        return _averaged(table, clocks, starts, sizes), starts, (note,)
    repeated = int((sizes[clash] - 1).sum())
    if repeated > RARE * len(first):
        raise UndecidedError(
            f"{source} has {len(first)} rows for {len(starts)} steps: micro-batches, rows of single rollouts, "
            "or several runs?",
            "average",
        )
    first |= clash[np.cumsum(first) - 1]
    starts = np.flatnonzero(first)
    joined = {key: _joined(column, starts) for key, column in table.items()}
    return joined, starts, _joining(table["step"], first)


def _joining(step: Floats, first: Bools) -> tuple[str, ...]:
    """That rows were joined with others of the same step, and of which step where one was.

    first (N,): the rows that are the first of their step.
    """
    again = step[~first]
    which = f" (step {again[0]:,.0f})" if len(again) == 1 else ""
    return (f"{len(again)} rows were joined with others of the same step{which}",) if len(again) else ()


def _joined(column: Floats, starts: Ints) -> Floats:
    """The value of each group of rows that has at most one; a null or NaN that was written where it has no other."""
    values: Floats = np.fmax.reduceat(column, starts)
    for mark, written in ((WRITTEN_NULL, is_written_null(column)), (WRITTEN_NAN, is_written_nan(column))):
        if written.any():
            values[np.isnan(values) & np.logical_or.reduceat(written, starts)] = mark
    return values


def _contradictions(table: Mapping[str, Floats], clocks: Collection[str], starts: Ints) -> Bools:
    """Whether any column has two values in a group of rows, for each group."""
    clash = np.zeros(len(starts), bool)
    with np.errstate(invalid="ignore"):
        for key, column in table.items():
            if key not in clocks:
                clash |= np.fmax.reduceat(column, starts) > np.fmin.reduceat(column, starts)
    return clash


def _micro_batches(rewards: Sequence[Floats], sizes: Ints) -> bool:
    """Whether all steps have the same number of rows, and their places the same rewards."""
    size = int(sizes[0])
    if size < 2 or len(sizes) < FEWEST + 1 or (sizes[:-1] != size).any() or sizes[-1] > size or not rewards:
        return False
    return all(not _places_differ(column[: size * (len(sizes) - 1)].reshape(-1, size)) for column in rewards)


def _places_differ(rewards: Floats) -> bool:
    """Whether the places (columns) of rewards (S, K) differ in mean by more than the rest, their steps' means aside."""
    from scipy.special import fdtrc

    rewards = rewards[np.isfinite(rewards).all(1)]
    steps, places = rewards.shape
    if steps < FEWEST:
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        centred = rewards - rewards.mean(1, keepdims=True)
        between = steps * (centred.mean(0) ** 2).sum() / (places - 1)
        within = ((centred - centred.mean(0)) ** 2).sum() / ((places - 1) * (steps - 1))
        if not math.isfinite(between + within):  # of numbers whose squares no float holds
            return True
    if within <= 1e-24 * (1 + (rewards**2).mean()):
        return bool(between > 0)
    return bool(fdtrc(places - 1, (places - 1) * (steps - 1), between / within) < DIFFER)


def _averaged(table: Mapping[str, Floats], clocks: Collection[str], starts: Ints, sizes: Ints) -> dict[str, Floats]:
    """Means of each group of rows; the last value of clocks. A NaN counts where a column has a value in most rows.

    A NaN that was written makes the mean of its group one too; a null does where the group has no mean.
    """
    averaged = {}
    for key, column in table.items():
        there = ~np.isnan(column)
        if key in clocks:
            averaged[key] = np.fmax.reduceat(column, starts)
        elif there.mean() > 0.9:
            with np.errstate(over="ignore", invalid="ignore"):
                averaged[key] = np.add.reduceat(column, starts) / sizes
        else:
            count = np.add.reduceat(there.astype(np.float64), starts)
            with np.errstate(over="ignore", invalid="ignore"):
                total = np.add.reduceat(np.where(there, column, 0.0), starts)
            averaged[key] = np.divide(total, count, out=np.full(len(starts), np.nan), where=count > 0)
        if (null := is_written_null(column)).any():
            averaged[key][np.isnan(averaged[key]) & np.logical_or.reduceat(null, starts)] = WRITTEN_NULL
        if (written := is_written_nan(column)).any():
            averaged[key][np.logical_or.reduceat(written, starts)] = WRITTEN_NAN
    averaged["step"] = table["step"][starts]
    return averaged


def _in_order_of_steps(table: Mapping[str, Floats], clocks: Collection[str]) -> Ints | None:
    """The order (N,) of the rows by attempt, then by step; None where one program wrote all.

    clocks: columns that several programs may have, such as times.
    """
    step = table["step"]
    programs = _programs({key: column for key, column in table.items() if key not in clocks}, len(step))
    if len(np.unique(programs[programs >= 0])) < 2:
        return None
    order: Ints = np.lexsort((np.arange(len(step)), step, _attempts(programs, step)))
    return order


def last_attempts(table: Mapping[str, Floats], clocks: Collection[str]) -> Bools:
    """Rows (N,) of the last attempt of every step: those before the first step of every later attempt."""
    step = table["step"]
    programs = _programs({key: column for key, column in table.items() if key not in clocks}, len(step))
    attempt = _attempts(programs, step)
    first = np.full(int(attempt.max(initial=0)) + 2, np.inf)
    np.minimum.at(first, attempt, step)
    limit = np.minimum.accumulate(first[::-1])[::-1]
    before: Bools = step < limit[attempt + 1]
    return before


def _programs(columns: Mapping[str, Floats], count: int) -> Ints:
    """The program of each row (N,), by the metrics that rows have in common; −1 for rows of clocks only."""
    keys = list(columns)
    weights = np.random.default_rng(0).integers(1, 1 << 62, len(keys), dtype=np.int64)
    mark = np.zeros(count, np.int64)
    for key, weight in zip(keys, weights, strict=True):
        mark += np.where(np.isnan(columns[key]), 0, weight)  # a sum that tells sets of keys apart
    kinds, first, kind = np.unique(mark, return_index=True, return_inverse=True)
    program_of_key: dict[str, int] = {}
    merged = list(range(len(kinds)))
    for number, row in enumerate(first.tolist()):
        for key in (key for key in keys if not np.isnan(columns[key][row])):
            _merge(merged, number, program_of_key.setdefault(key, number))
    roots = np.array([_root(merged, number) for number in range(len(kinds))])
    values: Ints = np.where(mark == 0, -1, roots[kind])
    return values


def _root(merged: list[int], number: int) -> int:
    while merged[number] != number:
        number = merged[number]
    return number


def _merge(merged: list[int], mark_number: int, other: int) -> None:
    merged[_root(merged, mark_number)] = _root(merged, other)


def _attempts(programs: Ints, step: Floats) -> Ints:
    """The attempt of each row (N,): a new one begins where the step of a program falls, for all programs."""
    attempts = np.empty(len(step), np.int64)
    now, last = 0, dict[int, float]()
    for row, (program, at) in enumerate(zip(programs.tolist(), step.tolist(), strict=True)):
        if program >= 0:
            if at < last.get(program, at):
                now, last = now + 1, {}
            last[program] = at
        attempts[row] = now
    return attempts


def _is_staircase_with_gaps(values: Floats, changes: Ints) -> bool:
    """Whether all but few stairs have one length, as where rows are missing or were written again, and heights seldom
    come back. changes: where a stair begins that is not the first."""
    lengths = np.diff(np.append(changes, len(values)))[:-1]
    if len(lengths) < FEWEST_STAIRS:
        return False
    block = int(np.bincount(lengths).argmax())
    alike, heights = np.mean(lengths == block) >= 1 - BROKEN, len(np.unique(values))
    return bool(2 <= block <= LONGEST and alike and lengths.max() <= 2 * block and 2 * heights > len(lengths))


def copies(column: Floats) -> Bools | None:
    """Rows (N,) whose value is a copy of the one before; None where the column is no staircase. NaN rows are none."""
    there = np.flatnonzero(~np.isnan(column))
    values = column[there]
    if len(values) < 4 or (values[1:4] != values[:3]).sum() > 2:
        return None
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    if len(changes) < 3 or 2 * len(changes) > len(values) + BROKEN * len(values):
        return None
    if _is_staircase_with_gaps(values, changes):
        valid = np.ones(len(column), bool)
        valid[there[np.append(0, changes)]] = False
        return valid & ~np.isnan(column)
    if 2 * len(changes) > len(values):
        return None
    block = int(np.gcd.reduce(np.diff(changes)))
    blocks = len(values) / block if block else 0.0
    if not 2 <= block <= LONGEST or len(changes) < MOVES * (blocks - 1):
        return None
    if math.log(block) * (1 - len(changes)) > math.log(CHANCE):
        return None
    valid = np.zeros(len(column), bool)
    first = changes[0] % block
    valid[there] = (np.arange(len(values)) - first) % block != 0
    valid[there[0]] = False
    return valid


PER_STEP: tuple[Callable[[LogTable], LogTable], ...] = (
    _rows_by_step,
    _without_copies,
    _last_attempt_of_every_step,
)
"""Steps of reading that leave one row per step, in order."""
