"""Several rows of one step as one row: parts of it, or micro-batches, whose values are averaged.

Rows of one step that do not contradict each other are parts of one row (TensorBoard, W&B). Rows that do are averaged if
the user says so, or if they are plainly micro-batches: every step has the same number of rows (the last may have
fewer), and no place within the step has other rewards than the rest (F test at 0.001), as interleaved runs have. A few
that contradict each other are restarts. Of anything between, the user is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.files import WRITTEN_NAN, WRITTEN_NULL
from grposcope.core.not_finite import is_written_nan, is_written_null
from grposcope.core.run import Bools, Floats, Ints
from grposcope.logs.hints import UndecidedError

FEWEST = 3
"""Steps below which rows of one step are not plainly micro-batches."""

RARE = 0.1
"""Share of repeated rows up to which they are those of restarts."""

DIFFER = 1e-3
"""p-value below which places within the step have different rewards."""


@dataclass(frozen=True)
class Merged:
    """A table with a row per group of rows of one step; starts: the first row of each group; notes: what was done."""

    table: dict[str, Floats]
    starts: Ints
    notes: tuple[str, ...] = ()


def merge(
    table: dict[str, Floats], clocks: Collection[str], rewards: Sequence[Floats], average: bool, source: str
) -> Merged:
    """Merge successive rows of one step. clocks: columns that may differ within a step. rewards: columns (N,).

    average: average them whatever they are. UndecidedError where they contradict each other too often for restarts and
    are not plainly micro-batches.
    """
    first = np.append(True, np.diff(table["step"]) != 0)
    if first.all():
        return Merged(table, np.arange(len(first)))
    starts = np.flatnonzero(first)
    clash = _contradictions(table, clocks, starts)
    if not clash.any():
        joined = {key: _joined(column, starts) for key, column in table.items()}
        return Merged(joined, starts, (f"{len(first) - len(starts)} rows were joined with others of the same step",))
    sizes = np.diff(np.append(starts, len(first)))
    plain = _micro_batches(rewards, sizes)
    if average or plain:
        why = "as asked" if average else f"they are micro-batches, {sizes[0]} per step"
        note = f"the rows of a step were averaged, {len(first)} rows to {len(starts)} steps: {why}"
        return Merged(_averaged(table, clocks, starts, sizes), starts, (note,))
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
    count = len(first) - len(starts)
    return Merged(joined, starts, (f"{count} rows were joined with others of the same step",) if count else ())


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
    centred = rewards - rewards.mean(1, keepdims=True)
    between = steps * (centred.mean(0) ** 2).sum() / (places - 1)
    within = ((centred - centred.mean(0)) ** 2).sum() / ((places - 1) * (steps - 1))
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
