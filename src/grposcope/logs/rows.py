"""Which rows of a log are what: their steps, and rows of training, of evaluation, and of the run as a whole."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Floats
from grposcope.logs import keys
from grposcope.logs.columns import RUNS, ColumnBuilder
from grposcope.logs.evaluations import evaluated_keys
from grposcope.logs.keys import CLOCKS, STEPS
from grposcope.logs.naming import trained_keys
from grposcope.logs.row_kinds import Cells, Kinds, evaluations, split
from grposcope.logs.table import LogTable

SUMMARY = frozenset(
    ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss",
     "train_tokens_per_second", "epoch", "step")
)  # fmt: skip
"""Keys of the last row that the transformers library writes, which is about the run as a whole."""

FEWEST = 6
"""Steps below which their order may be chance."""

USUAL = 0.95
"""Share of the rows with a reward that have what a row of training usually has."""

_FLAG = re.compile(r"(?:is_?)?(?:eval|evaluation|val|validation|test|held_?out)", re.I)


def steps_as_logged(table: LogTable) -> LogTable:
    """The step of each row by the key that the user says, else by the trainer's own, else the most reliable one.

    NaN for all where none counts steps. A step that counts within each epoch, as it falls just where the epoch goes on
    by one, is counted over all of them.
    """
    columns, given = dict(table.columns), table.given.get("step")
    counters = [key for key in table.trainer.counters if key in columns and np.isfinite(columns[key]).any()]
    stated = counters or [key for key in table.trainer.keys.get("step", ()) if key in columns]
    best, most = given or next(iter(stated), None), 0
    for key in STEPS if best is None else ():
        if key in columns and (finite := int(np.isfinite(columns[key]).sum())) > 1.5 * most:
            best, most = key, finite
    note = ""
    if len(counters) > 1 and given is None:
        step, note = _by_counters([columns[key] for key in counters])
    elif best is None:
        step, note = np.full(len(table.lines), np.nan), "no key counts steps, so rows are numbered from 1"
    else:
        step = columns[best].copy()
        step[~(np.abs(step) < 2.0**53)] = math.nan
        if best == "_step":
            note = "steps count calls of wandb.log (_step), which may differ from optimiser steps"
    columns.pop("step", None)
    epoch = columns.get("epoch")
    if given is None and epoch is not None and np.isfinite(step).all() and np.isfinite(epoch).all():
        moves, falls = np.diff(epoch), np.diff(step) < 0
        if falls.any() and (moves[falls] == 1).all() and not moves[~falls].any():
            step = step + (epoch - epoch[0]) * (np.ptp(step) + np.median(np.diff(step)[~falls]))
            note = "the step counts within the epoch; steps are counted over all epochs"
    return table.noting(*[note] * bool(note), columns=columns, step=step)


def rows_in_order(table: LogTable) -> LogTable:
    """The rows by their steps, where these stand newest first, sorted as text, or in pieces of one even sequence.

    Only where a step never comes back, so that no row can be one of a restart.
    """
    step = table.step
    if not np.isfinite(step).all() or not (np.diff(step) < 0).any():
        return table
    once = step[np.append(True, np.diff(step) != 0)]
    ordered = np.sort(once)
    if len(once) < FEWEST or (np.diff(ordered) == 0).any():
        return table
    texts = [f"{at:.17g}" for at in once.tolist()]
    pieces = int((np.diff(once) < 0).sum()) > 1 and np.ptp(np.diff(ordered)) == 0
    if not ((np.diff(once) < 0).all() or texts == sorted(texts) or pieces):
        return table
    order = np.argsort(step, kind="stable")
    place = {int(row): k for k, row in enumerate(order)}
    builder = ColumnBuilder()
    builder.texts = table.log.rows.texts
    builder.labels = {
        key: {place[row]: text for row, text in of_row.items()} for key, of_row in table.log.rows.labels.items()
    }
    return table.noting(
        "the rows do not stand in the order of their steps, and were put into it",
        log=replace(table.log, rows=builder),
        lines=table.lines[order],
        columns={key: column[order] for key, column in table.columns.items()},
        step=step[order],
    )


def _by_counters(counters: Sequence[Floats]) -> tuple[Floats, str]:
    """The step of rows of different kinds by the counter of each; of k updates to a rollout, the rollouts' times k."""
    updates, *others = counters
    times = max(1, round((float(np.nanmax(updates)) + 1) / (max(float(np.nanmax(one)) for one in others) + 1)))
    step = updates.copy()
    for counter in others:
        step = np.where(np.isnan(step), counter * times, step)
    return step, f"each rollout has {times} updates: steps count updates" if times > 1 else ""


def kinds_of_rows(table: LogTable) -> LogTable:
    """Rows of evaluation and of other kinds by every text column and flag; values that are no parts of the training go.

    UserError where two kinds might be the training.
    """
    trained = trained_keys(table)
    if "reward" in table.given:
        rewarding = [table.given["reward"]]
    else:
        meant = [key for key in trained if table.trainer.metric(key, usual=True) == "reward"]
        rewarding = meant or [key for key in trained if keys.SIGNAL.search(key)]
    metrics = {key: column for key, column in table.columns.items() if key not in CLOCKS}
    count, cells = len(table.step), Cells(metrics, table.step, rewarding)
    kinds = Kinds(np.zeros(count, bool), np.zeros(count, bool), [], [])
    for key, of_row in table.log.rows.labels.items():
        if key not in RUNS:
            try:
                split(key, of_row, cells, kinds)
            except UserError as error:
                raise UserError(f"{table.log.source}: {error}") from None
    for key, column in metrics.items():
        flagged, values = column == 1, set(np.unique(column[np.isfinite(column)]).tolist())
        if _FLAG.fullmatch(key.rpartition("/")[2]) and values <= {0.0, 1.0} and 0 < flagged.sum() < count:
            evaluations(f"{key} = 1", flagged, kinds)
    columns = dict(table.columns)
    for key, rows in kinds.blanked:
        columns[key] = np.where(rows, np.nan, columns[key])
    table = table.noting(*kinds.notes, columns=columns, rewarding=tuple(rewarding))
    rewarded = table.rows_with(rewarding or trained) & ~kinds.held_out
    return replace(table, held_out=kinds.held_out, left_out=kinds.left_out, rewarded=rewarded)


def training_and_evaluation(table: LogTable) -> LogTable:
    """Keys and rows of training and of what was evaluated apart; a row without any value is one of training, too.

    The last row of transformers is taken out as the summary of the run.
    """
    columns = table.columns
    own = table.trainer.trained_on
    metrics = {key: column for key, column in columns.items() if key not in CLOCKS and not (own and own.fullmatch(key))}
    evaluated = evaluated_keys(metrics, table.rewarded)
    training = tuple(key for key in columns if key not in evaluated)
    scored = table.rows_with(evaluated) & ~table.left_out
    busy = (table.rows_with(training) | ~scored) & ~table.held_out & ~table.left_out
    table = replace(table, evaluated=evaluated, training=training, scored=scored, busy=busy)
    if "train_runtime" not in columns:
        return table
    closing = ~np.isnan(columns["train_runtime"]) & ~table.rows_with(key for key in training if key not in SUMMARY)
    if not closing.any():
        return table
    last, busy = int(np.flatnonzero(closing)[-1]), busy & ~closing
    summary = {key: float(columns[key][last]) for key in SUMMARY if key in columns and not np.isnan(columns[key][last])}
    gone = {key for key in SUMMARY - CLOCKS if key in columns and not (~np.isnan(columns[key]) & busy).any()}
    return replace(table, busy=busy, summary=summary, training=tuple(key for key in training if key not in gone))


def without_an_odd_first_row(table: LogTable) -> LogTable:
    """The rows of training without a first one of another kind, as of an evaluation before training, or a placeholder.

    It lacks half of what nearly all other rows with a reward have, or has zeros in all of that, and its reward is
    further from the next ones than these are from each other.
    """
    rows, columns = np.flatnonzero(table.busy & table.rewarded), table.columns
    if len(rows) < 2 * FEWEST or not table.rewarding:
        return table
    first, rest = rows[0], rows[1:]
    usual = [
        key for key in table.training
        if key not in CLOCKS and key not in table.rewarding and np.isfinite(columns[key][rest]).mean() >= USUAL
    ]  # fmt: skip
    levels = columns[table.rewarding[0]][rows[: 2 * FEWEST]]
    if not usual or not np.isfinite(levels).all():
        return table
    here = np.array([columns[key][first] for key in usual])
    zeros = len(usual) > 1 and np.logical_and.reduce([columns[key][rows] == 0 for key in usual])
    placeholder = bool(np.any(zeros)) and bool(np.flatnonzero(zeros).tolist() == [0])
    with np.errstate(over="ignore"):
        spread = np.ptp(levels[1:])
        odd = not levels[1:].min() - spread <= levels[0] <= levels[1:].max() + spread
    if not odd or not (placeholder or np.isnan(here).mean() >= 0.5):
        return table
    why = "has only zeros beside its reward" if placeholder else "lacks what all other rows have"
    gone = np.arange(len(table.busy)) == first
    return table.noting(
        f"the first row (step {table.step[first]:g}) is left out as no row of training: it {why}, and its reward is "
        "far from those after it",
        busy=table.busy & ~gone,
        left_out=table.left_out | gone,
    )


def steps_of_every_row(table: LogTable) -> LogTable:
    """Rows numbered from 1 where no key counts steps; the step of the row before for an evaluation without one."""
    step, busy = table.step, table.busy
    if not len(step) or np.isnan(step).all():
        step = np.where(busy, np.cumsum(busy), np.nan)
    without = (table.scored | table.held_out) & ~busy & np.isnan(step)
    if not without.any():
        return replace(table, step=step)
    before = np.maximum.accumulate(np.where(busy & np.isfinite(step), np.arange(len(step)), -1))
    found = without & (before >= 0)
    note = f"{int(found.sum())} evaluations have no step; each is placed at the row before it"
    return table.noting(note, step=np.where(found, step[before], step))
