"""Parts of a log: several runs, of which one is read, and environments, domains or agents, each a run by itself.

Several runs are told apart by a label such as run_id, or by steps that begin anew; the user says which. A step that
falls back to the first one begins another run, unless less than FEWEST steps came before it, which were a false start.
A step that falls back to a later one goes on from a checkpoint, and is the same run.

Environments are told by their keys, or by a text of each row. By keys: a trainer logs what it logs of the whole once
more for each environment, under other names (`Trainer.scoped`). By rows: several rows of a step, one for each text of a
column such as `env`. The whole is then the mean of the rows of a step, each environment counting alike. Where every
row is of one of several tasks at levels of their own, the whole has no course: what is said of it is said of a task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Bools, Evaluations, Floats, Ints, Run
from grposcope.core.text import listed, visible
from grposcope.logs.columns import RUNS, ColumnBuilder, RawLog
from grposcope.logs.hints import LAST, UndecidedError
from grposcope.logs.table import LogTable
from grposcope.logs.trainers.trainer import Settings, Trainer

NAMES = frozenset(
    ("env", "environment", "env_name", "env_id", "domain", "agent", "agent_name", "data_source", "dataset", "task",
     "task_name", "scope")
)  # fmt: skip
"""Columns whose text says of which part of a run a row is."""

MOST = 50
"""Parts of a run."""

NUMBERED = (*RUNS, "seed", "trial", "fold")
"""Keys whose number, or text for those of RUNS, names the run of a row."""

FEWEST = 12
"""Steps below which a beginning is a false start: nothing could be said of it anyway."""

_FAR = 2.0
"""Times that the reward differs more between rows of two tasks than between rows of one."""

_SHOWN = 6


def of_columns(run: Run, trainer: Trainer, table: Mapping[str, Floats], settings: Settings) -> dict[str, Run]:
    """Name -> the run of that environment alone, from the columns `table` of the whole under the trainer's keys.

    Empty where the log has fewer than two.
    """
    keys = {} if trainer.scoped is None else trainer.scoped(table.keys())
    runs: dict[str, Run] = {}
    for name, of_scope in list(keys.items())[:MOST]:
        columns = {"step": table["step"], **{whole: table[key] for key, whole in of_scope.items()}}
        defined, _ = trainer.definitions(columns, settings, run.window)
        if "reward" not in defined.values():
            continue
        made = trainer.worked_out(columns, defined)
        own = {defined.get(key, key): column for key, column in columns.items()}
        inverse = {whole: key for key, whole in of_scope.items()}
        runs[name] = replace(
            run,
            meta=replace(run.meta, name=f"{run.meta.name}, {name}", notes=()),
            table=own | {metric: column.values for metric, column in made.items()},
            keys={defined.get(whole, whole): key for whole, key in inverse.items()},
            evaluations=_of(run.evaluations, name),
            segments=(),
            scopes={},
        )
    return runs if len(runs) > 1 else {}


def _of(evaluations: Evaluations, name: str) -> Evaluations:
    """The evaluations of an environment: those whose metric begins with its name, without it."""
    prefix = f"{name}/"
    return Evaluations.of_rows([
        (int(step), metric.removeprefix(prefix), float(value), float(se), int(n), flag)
        for step, metric, value, se, n, flag in zip(
            evaluations.step, evaluations.metric, evaluations.value, evaluations.se, evaluations.n, evaluations.flag,
            strict=True,
        )
        if metric.startswith(prefix)
    ])  # fmt: skip


def labelled(log: RawLog, step: Floats, rewarded: np.ndarray) -> tuple[str, Mapping[int, str]] | None:
    """The column whose text tells the rows of a step apart, and the text of each row; None where there is none.

    rewarded (N,): rows with a reward. Every step but few must have as many rows as there are texts, one of each.
    """
    for key, of_row in log.rows.labels.items():
        texts = set(of_row.values())
        if key.rpartition("/")[2].lower() not in NAMES or not 2 <= len(texts) <= MOST:
            continue
        rows = [row for row in of_row if rewarded[row] and np.isfinite(step[row])]
        pairs = {(float(step[row]), of_row[row]) for row in rows}
        steps = {at for at, _ in pairs}
        if len(pairs) == len(rows) == int((rewarded & np.isfinite(step)).sum()) and len(pairs) > 1.5 * len(steps):
            return key, of_row
    return None


def in_turn(log: RawLog, step: Floats, reward: Floats, rows: np.ndarray) -> tuple[str, Mapping[int, str]] | None:
    """The column whose text says of which task a row is, one task in every row, and the text of each row; else None.

    reward (N,): of the chosen rows (N,). Every text has FEWEST rows or more, and the reward differs far more from one
    row to the next of another task than from one to the next of its own.
    """
    own = np.flatnonzero(rows & np.isfinite(reward) & np.isfinite(step))
    own = own[np.argsort(step[own], kind="stable")]
    if len(np.unique(step[own])) < len(own):
        return None
    for key, of_row in log.rows.labels.items():
        texts = [of_row.get(int(row), "") for row in own]
        counts = Counter(texts)
        if key.rpartition("/")[2].lower() not in NAMES or "" in counts or not 2 <= len(counts) <= MOST:
            continue
        changes = np.array([a != b for a, b in pairwise(texts)])
        across = np.diff(reward[own])[changes]
        within = [np.diff(reward[own[[text == name for text in texts]]]) for name in counts]
        noise = float(np.median(np.square(np.concatenate(within))))
        if min(counts.values()) >= FEWEST and float(np.median(np.square(across))) > _FAR**2 * noise:
            return key, of_row
    return None


def part(log: RawLog, columns: Mapping[str, Floats], rows: np.ndarray, lines: np.ndarray, name: str) -> RawLog:
    """The log of the chosen rows (N,) alone."""
    builder = ColumnBuilder()
    builder.block(lines[rows], {key: column[rows] for key, column in columns.items()})
    return replace(log, rows=builder, notes=[], name=name)


def chosen(run: Run, name: str) -> Run:
    """The part of a run that is called `name`; UserError, which lists the parts, where there is none."""
    if name in run.scopes:
        return run.scopes[name]
    if not run.scopes:
        raise UserError(f"{run.meta.source} does not log environments separately, so there is no {visible(name, 60)!r}")
    some = listed([visible(scope, 40) for scope in list(run.scopes)[:12]])
    raise UserError(f"{run.meta.source} has no environment {visible(name, 60)!r}; it has {some}")


def one_run(table: LogTable) -> LogTable:
    """The rows of the run that the user says; UndecidedError, which lists the runs, where there are several."""
    log, run = table.log, table.hints.run
    of_row, names = _runs_of_rows(table)
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


def _runs_of_rows(table: LogTable) -> tuple[Ints, list[str]]:
    """Run of each row (N,), and the names of the runs in order: by a label, else by steps that begin anew.

    Rows that say nothing of that, or are not of training, belong to the run before them.
    """
    step, of_row = table.step, np.zeros(len(table.step), np.int64)
    for key in NUMBERED:
        texts: Mapping[int, str] = table.log.rows.labels.get(key, {}) if key in RUNS else {}
        if not texts and key in table.columns:
            numbers = table.columns[key]
            texts = {int(row): f"{key} {numbers[row]:g}" for row in np.flatnonzero(np.isfinite(numbers))}
            if len(set(texts.values())) * FEWEST > len(texts):  # a number that changes all the time is no label
                continue
        names = list(dict.fromkeys(texts.values()))
        if len(names) > 1:
            now, places = 0, {name: k for k, name in enumerate(names)}
            for row in range(len(step)):
                now = places[texts[row]] if row in texts else now
                of_row[row] = now
            return of_row, names
    rows = np.flatnonzero(table.busy & np.isfinite(step))
    begin, run = 0, 0
    for fall in rows[1:][np.diff(step[rows]) < 0].tolist():
        before = step[rows[(rows >= begin) & (rows < fall)]]
        if len(before) and step[fall] <= before.min() and len(np.unique(before)) >= FEWEST:
            run, begin = run + 1, fall
            of_row[fall:] = run
    return of_row, [""] * (run + 1)
