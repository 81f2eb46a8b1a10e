"""Which rows of a log are what: their steps, rows of training, of evaluation and of the run as a whole, one of several
runs.

Several runs in one log are told apart by a label such as run_id, or by steps that begin anew; the user says which. A
step that falls back to the first one begins another run, unless less than FEWEST steps came before it, which were a
false start. A step that falls back to a later one goes on from a checkpoint, and is the same run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Bools, Floats, Ints
from grposcope.core.text import visible
from grposcope.logs import keys, row_kinds
from grposcope.logs.columns import RUNS
from grposcope.logs.hints import LAST, UndecidedError
from grposcope.logs.keys import CLOCKS, STEPS
from grposcope.logs.naming import trained_keys
from grposcope.logs.table import LogTable

SUMMARY = frozenset(
    ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss",
     "train_tokens_per_second", "epoch", "step")
)  # fmt: skip
"""Keys of the last row that the transformers library writes, which is about the run as a whole."""

NUMBERED = (*RUNS, "seed", "trial", "fold")
"""Keys whose number, or text for those of RUNS, names the run of a row."""

FEWEST = 12
"""Steps below which a beginning is a false start: nothing could be said of it anyway."""

_SHOWN = 6


def steps_as_logged(table: LogTable) -> LogTable:
    """The step of each row by the key that the user says, else by the trainer's own, else the most reliable one.

    NaN for all where none counts steps.
    """
    columns, given = dict(table.columns), table.given.get("step")
    own = [columns[key] for key in table.trainer.counters if key in columns and np.isfinite(columns[key]).any()]
    best, most = given, 0
    for key in STEPS if given is None else ():
        if key in columns and (finite := int(np.isfinite(columns[key]).sum())) > 1.5 * most:
            best, most = key, finite
    note = ""
    if len(own) > 1 and given is None:
        step, note = _by_counters(own)
    elif best is None:
        step, note = np.full(len(table.lines), np.nan), "no key counts steps, so rows are numbered from 1"
    else:
        step = columns[best].copy()
        step[~(np.abs(step) < 2.0**53)] = math.nan
        if best == "_step":
            note = "steps count calls of wandb.log (_step), which may differ from optimiser steps"
    columns.pop("step", None)
    return table.noting(*[note] * bool(note), columns=columns, step=step)


def _by_counters(counters: Sequence[Floats]) -> tuple[Floats, str]:
    """The step of rows of different kinds by the counter of each; of k updates to a rollout, the rollouts' times k."""
    updates, *others = counters
    times = max(1, round((float(np.nanmax(updates)) + 1) / (max(float(np.nanmax(one)) for one in others) + 1)))
    step = updates.copy()
    for counter in others:
        step = np.where(np.isnan(step), counter * times, step)
    return step, f"each rollout has {times} updates: steps count updates" if times > 1 else ""


def kinds_of_rows(table: LogTable) -> LogTable:
    """Rows of evaluation and of other kinds by what a text column says; values that are no parts of the training go."""
    trained = trained_keys(table)
    if "reward" in table.given:
        rewarding = [table.given["reward"]]
    else:
        meant = [key for key in trained if table.trainer.metric_or_usual(key) == "reward"]
        rewarding = meant or [key for key in trained if keys.SIGNAL.search(key)]
    metrics = {key: column for key, column in table.columns.items() if key not in CLOCKS}
    try:
        kinds = row_kinds.of_rows(table.log.rows.labels, row_kinds.Cells(metrics, table.step, rewarding))
    except UserError as error:
        raise UserError(f"{table.log.source}: {error}") from None
    columns = dict(table.columns)
    for key, rows in kinds.blanked:
        columns[key] = np.where(rows, np.nan, columns[key])
    table = table.noting(*kinds.notes, columns=columns, rewarding=tuple(rewarding))
    rewarded = table.rows_with(rewarding or trained) & ~kinds.held_out
    return replace(table, held_out=kinds.held_out, left_out=kinds.left_out, rewarded=rewarded)


def training_and_evaluation(table: LogTable) -> LogTable:
    """Keys and rows of training and of what was evaluated apart; a row without any value is one of training, too."""
    metrics = {key: column for key, column in table.columns.items() if key not in CLOCKS}
    evaluated = keys.evaluated_keys(metrics, table.rewarded)
    training = tuple(key for key in table.columns if key not in evaluated)
    scored = table.rows_with(evaluated) & ~table.left_out
    table = replace(table, evaluated=evaluated, training=training, scored=scored)
    return replace(table, busy=(table.trained_on() | ~scored) & ~table.held_out & ~table.left_out)


def closing_row(table: LogTable) -> LogTable:
    """The last row of transformers, taken out as the summary of the run."""
    columns, training = table.columns, list(table.training)
    if "train_runtime" not in columns:
        return table
    closing = ~np.isnan(columns["train_runtime"]) & ~table.rows_with(
        key for key in training if key not in SUMMARY and key not in CLOCKS
    )
    if not closing.any():
        return table
    last, busy = int(np.flatnonzero(closing)[-1]), table.busy & ~closing
    summary = {key: float(columns[key][last]) for key in SUMMARY if key in columns and not np.isnan(columns[key][last])}
    gone = {
        key for key in SUMMARY - CLOCKS if key in columns and not (~np.isnan(columns[key]) & busy).any()
    }  # fmt: skip
    return replace(table, busy=busy, summary=summary, training=tuple(key for key in training if key not in gone))


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


def one_run(table: LogTable) -> LogTable:
    """The rows of the run that the user says; UndecidedError, which lists the runs, where there are several."""
    log, run = table.log, table.hints.run
    of_row, names = _labelled(table)
    if len(names) < 2:
        of_row = _begun_anew(table.step, table.busy)
        names = [""] * (int(of_row.max(initial=0)) + 1)
    if len(names) < 2 and (log.numbered or run in (None, LAST, 1)):
        return replace(table, chosen=np.ones(len(table.step), bool))
    told = [_told(table, k, name, of_row == k) for k, name in enumerate(names)]
    which = len(names) - 1 if run == LAST else -1 if run is None else run - 1
    if not 0 <= which < len(names):
        more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        many = f"{len(names)} runs" if len(names) > 1 else "one run only"
        raise UndecidedError(f"{log.source}: {many} in it: {'; '.join(told[:_SHOWN])}{more}", "run")
    chosen = of_row == which
    own = {name: getattr(table, name) & chosen for name in ("busy", "scored", "held_out")}
    return table.noting(f"of {len(names)} runs in this log, this is {told[which]}", chosen=chosen, **own)


def _told(table: LogTable, number: int, name: str, rows: Bools) -> str:
    """A run in words: its number and label, its steps, and where it stands."""
    own = np.flatnonzero(rows & table.busy & np.isfinite(table.step))
    label = f" ({visible(name, 60)})" if name else ""
    if not len(own):
        return f"{number + 1}{label}: no steps"
    first, last = table.step[own].min(), table.step[own].max()
    return f"{number + 1}{label}: steps {first:g} to {last:g}, from {table.log.place} {table.lines[own[0]]}"


def _labelled(table: LogTable) -> tuple[Ints, list[str]]:
    """Run of each row by a label, and the labels in order; rows without one belong to the run before them."""
    count = len(table.step)
    for key in NUMBERED:
        texts: Mapping[int, str] = table.log.rows.labels.get(key, {}) if key in RUNS else {}
        if not texts and key in table.columns:
            numbers = table.columns[key]
            texts = {int(row): f"{key} {numbers[row]:g}" for row in np.flatnonzero(np.isfinite(numbers))}
            if len(set(texts.values())) * FEWEST > len(texts):  # a number that changes all the time is no label
                continue
        names = list(dict.fromkeys(texts.values()))
        if len(names) > 1:
            of_row, now = np.zeros(count, np.int64), 0
            places = {name: k for k, name in enumerate(names)}
            for row in range(count):
                now = places[texts[row]] if row in texts else now
                of_row[row] = now
            return of_row, names
    return np.zeros(count, np.int64), [""]


def _begun_anew(step: Floats, training: Bools) -> Ints:
    """Run of each row by its steps; rows that are not of training belong to the run before them."""
    rows = np.flatnonzero(training & np.isfinite(step))
    of_row = np.zeros(len(step), np.int64)
    falls = rows[1:][np.diff(step[rows]) < 0]
    begin, run = 0, 0
    for fall in falls.tolist():
        before = step[rows[(rows >= begin) & (rows < fall)]]
        if len(before) and step[fall] <= before.min() and len(np.unique(before)) >= FEWEST:
            run, begin = run + 1, fall
            of_row[fall:] = run
    return of_row
