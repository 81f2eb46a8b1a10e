"""Environments, domains or agents of one run, each as a run by itself: told by their keys, or by a text of each row.

By keys: a trainer logs what it logs of the whole once more for each environment, under other names (`Trainer.scoped`).
By rows: several rows of a step, one for each text of a column such as `env`. The whole is then the mean of the rows
of a step, each environment counting alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Evaluations, Floats, Run
from grposcope.core.text import listed, visible
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.trainers.trainer import Settings, Trainer

NAMES = frozenset(
    ("env", "environment", "env_name", "env_id", "domain", "agent", "agent_name", "data_source", "dataset", "task",
     "task_name", "scope")
)  # fmt: skip
"""Columns whose text says of which part of a run a row is."""

MOST = 50
"""Parts of a run."""


def of_columns(run: Run, trainer: Trainer, table: Mapping[str, Floats], settings: Settings) -> dict[str, Run]:
    """Name -> the run of that environment alone, from the columns `table` of the whole under the trainer's keys.

    Empty where the log has fewer than two.
    """
    keys = {} if trainer.scoped is None else trainer.scoped(table.keys())
    found = {}
    for name, of_scope in list(keys.items())[:MOST]:
        columns = {"step": table["step"], **{whole: table[key] for key, whole in of_scope.items()}}
        defined, _ = trainer.definitions(columns, settings, run.window)
        if "reward" not in defined.values():
            continue
        made = trainer.worked_out(columns, defined)
        own = {defined.get(key, key): column for key, column in columns.items()}
        inverse = {whole: key for key, whole in of_scope.items()}
        found[name] = replace(
            run,
            meta=replace(run.meta, name=f"{run.meta.name}, {name}", notes=()),
            table=own | {metric: one.values for metric, one in made.items()},
            keys={defined.get(whole, whole): key for whole, key in inverse.items()},
            evaluations=_of(run.evaluations, name),
            segments=(),
            scopes={},
        )
    return found if len(found) > 1 else {}


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
    some = listed([visible(one, 40) for one in list(run.scopes)[:12]])
    raise UserError(f"{run.meta.source} has no environment {visible(name, 60)!r}; it has {some}")
