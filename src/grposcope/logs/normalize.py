"""Makes a Run of the rows of any log: steps, restarts, evaluations, and the metric that each key is.

The way of a metric from a file to the Run is `READING`: each of its steps is a pure function from a table to a table.
Of several runs in one log, one is chosen. Rows of one step become one row. A step that does not increase is a restart:
`table` holds the last attempt of every step, `segments` every row of every attempt. Evaluations leave the table for
`evaluations`, also where they share a row with training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Floats, Meta, Reading, Run, Segment, no_groups
from grposcope.core.text import visible
from grposcope.logs import keys, scopes
from grposcope.logs.columns import RawLog
from grposcope.logs.evaluations import evaluations_of_steps
from grposcope.logs.hints import Hints, UnreadError
from grposcope.logs.meaning import metrics_of_keys, settings_and_window
from grposcope.logs.naming import (
    keys_of_the_user,
    one_key_per_metric,
    plain_keys,
    reward_by_words,
    trainer_of_the_keys,
    without_factors,
)
from grposcope.logs.per_step import last_attempt_of_every_step, rows_by_step, without_copies
from grposcope.logs.rows import (
    closing_row,
    kinds_of_rows,
    steps_as_logged,
    steps_of_every_row,
    training_and_evaluation,
)
from grposcope.logs.table import LogTable


def environments(table: LogTable) -> LogTable:
    """The run of each text of a column such as env, where that tells the rows of a step apart."""
    log, step, busy = table.log, table.step, table.busy
    found = scopes.labelled(log, step, busy & table.rewarded)
    if found is None:
        return table
    key, of_row = found
    own = {name: column for name, column in table.columns.items() if name != "step"} | {"step": step}
    hints, runs = replace(table.hints, run=None, average=False), {}
    for text in dict.fromkeys(of_row.values()):
        rows = np.zeros(len(step), bool)
        rows[[row for row, other in of_row.items() if other == text]] = True
        if (rows & busy).any():
            name = f"{log.name or log.source.resolve().name}, {text}"
            runs[text] = normalize(scopes.part(log, own, rows, table.lines, name), hints)
    return table.noting(
        f"{len(runs)} rows per step, distinguished by {visible(key, 40)}: the run is their mean, and "
        "each is a scope of its own",
        parts=runs,
    )


READING: tuple[Callable[[LogTable], LogTable], ...] = (
    plain_keys,
    keys_of_the_user,
    trainer_of_the_keys,
    reward_by_words,
    one_key_per_metric,
    without_factors,
    steps_as_logged,
    kinds_of_rows,
    training_and_evaluation,
    closing_row,
    steps_of_every_row,
    scopes.one_run,
    environments,
    rows_by_step,
    without_copies,
    last_attempt_of_every_step,
    settings_and_window,
    metrics_of_keys,
    evaluations_of_steps,
)
"""The steps from the rows of a log to what a Run holds, in order; each is explained where it stands."""


def normalize(log: RawLog, hints: Hints) -> Run:
    """The run in a log, with what the user says of it.

    UserError where it holds no metric; UnreadError, with the keys that it has, where no run can be made of its rows:
    UndecidedError where the user has to say which key is the reward, which of several runs it is, or what the rows of
    one step are.
    """
    lines, columns, sparse = log.rows.finish()
    if not columns:
        raise UserError(f"{log.source} holds no metrics; give the file that the trainer logs to")
    table = LogTable(log, hints, lines, columns, sparse, tuple(log.notes))
    try:
        for step in READING:
            table = step(table)
        return _run(table)
    except UnreadError as error:
        error.seen = error.seen or tuple(keys.seen(columns))
        raise
    except UserError as error:
        raise UnreadError(str(error), keys.seen(columns)) from None


def _run(table: LogTable) -> Run:
    """The run that a finished table holds."""
    log, trainer, defined, raw = table.log, table.trainer, table.defined, table.raw
    notes = list(table.notes)
    if table.sparse:
        notes.append(f'{len(table.sparse)} keys occur too rarely for a column of their own; they are under "unknown"')
    made = {name: one.values for name, one in table.made.items()}
    name = log.name or log.source.resolve().name
    run = Run(
        meta=Meta(log.source, table.engine, name, log.status, tuple(dict.fromkeys(notes))),
        config={"engine": table.engine, "settings": table.settings, "logged": log.logged},
        table=trainer.with_terms(_renamed(table.table, defined) | made, table.settings),
        groups=log.groups or no_groups(),
        evaluations=table.evaluations,
        rollouts=log.rollouts,
        summary=table.summary,
        keys={
            **{defined.get(key, key): raw.get(key, key) for key in table.table if key in defined or key in raw},
            **{name: one.formula for name, one in table.made.items()},
        },
        segments=tuple(_segment(table, segment) for segment in table.segments),
        unknown={**log.rows.texts, **table.sparse},
        window=table.window,
        reading=Reading(
            step=table.key_in_log(table.given["step"]) if "step" in table.given else log.step_key,
            rows=int(table.used().sum()),
            left_out=log.left_out.count,
            examples=log.left_out.examples,
            defects=table.defects,
        ),
    )
    return replace(run, scopes=table.parts or scopes.of_columns(run, trainer, table.table, table.settings))


def _segment(table: LogTable, segment: Segment) -> Segment:
    """An attempt under our names, with the metrics that follow from several of its columns."""
    made = table.trainer.worked_out(segment.table, {})
    own = {name: made[name].values for name in table.made if name in made}
    return replace(segment, table=_renamed(segment.table, table.defined) | own)


def _renamed(columns: Mapping[str, Floats], defined: Mapping[str, str]) -> dict[str, Floats]:
    return {defined.get(key, key): column for key, column in columns.items()}
