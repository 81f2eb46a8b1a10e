"""Makes a Run of the rows of any log: steps, restarts, evaluations, and the metric that each key is.

The way of a metric from a file to the Run is `READING`: each of its steps is a pure function from a table to a table.
Of several runs in one log, one is chosen. Rows of one step become one row. A step that does not increase is a restart:
`table` holds the last attempt of every step, `segments` every row of every attempt. Evaluations leave the table for
`evaluations`, also where they share a row with training.

Columns that measure nothing are done without: a distance between sampler and trainer that is exactly 0 in every row,
and the like. Two engines never agree to the last bit, so such a column was not measured, or compares a thing with
itself. It says nothing, which is not the same as that all is well. So are those that this version of the engine logs
wrongly.

Scores of evaluations: of keys such as eval_reward, and of rows that are labelled as held out.

Evaluations are told by how a key was written, never by an adjective. A path (`eval/`, `val-core/`) or the prefix
`eval_` says so. Of other names that begin with such a word, `test_accuracy` may be of a test set and `test_parse_ok` of
the rollouts trained on: they are evaluations where they have a value in at most half as many rows as the reward. A
score without such a word is one where it stands in just the rows of others that were evaluated apart, and in one at
least that has no reward, such as the row before the first step.

Of several at one step (games, environments, data sets), the mean counts. Of steps after the last row of training, the
first counts, since the others are of the same weights; values that were copied onto the rows after them count once.

Evaluations on another number of samples are of other problems, and scores of them do not compare: where runtime times
samples per second changes by _OTHER_SIZE, those of the size that has most samples in all are kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.not_finite import MEASURED, is_written_nan
from grposcope.core.run import Bools, Evaluations, Floats, Meta, Reading, Run, Segment, no_groups
from grposcope.core.text import visible
from grposcope.logs import keys, scopes
from grposcope.logs.columns import RawLog
from grposcope.logs.hints import Hints, UnreadError
from grposcope.logs.keys import CLOCKS
from grposcope.logs.naming import NAMING
from grposcope.logs.per_step import PER_STEP, copies
from grposcope.logs.rows import ROWS
from grposcope.logs.table import LogTable
from grposcope.logs.trainers import TRAINERS, generic

_OTHER_SIZE = 1.2
"""Ratio of two numbers of samples from which they are others; runtimes and rates are logged rounded."""

UNKNOWN_ERROR = "no standard error in the log"

GAMES = 10
"""Held-out rows of a step from which on they are taken for single games; fewer may be one row per data set."""

_COUNT = re.compile(r"n|count|(?:n|num)_(?:samples|examples|problems|prompts|games|episodes|tasks)", re.I)
"""Keys that say on how many problems something was evaluated."""


@dataclass(frozen=True)
class _EvaluatedColumn:
    """A column of evaluations: its key, the metric that it is, and its rows (N,)."""

    key: str
    metric: str
    rows: Bools


def _evaluations_of_steps(table: LogTable) -> LogTable:
    """The evaluations of the run that is read, a value per step and metric.

    Those after the last row of training are left out but for the first, any further being of the same weights.
    """
    sources, notes = _columns(table)
    if not sources:
        return table
    step, trained = table.step, table.rows_with(table.training) & table.chosen & ~table.held_out
    last = float(np.max(step[trained & np.isfinite(step)], initial=-math.inf))
    after = np.unique(step[np.logical_or.reduce([source.rows for source in sources])])
    after = after[after > last]
    if len(after) > 1 and np.isfinite(last):
        notes.append(
            f"evaluations at {len(after) - 1} steps after the last row of training ({last:g}) were left out, "
            "because no training happened between them"
        )
        sources = [replace(source, rows=source.rows & (step <= after[0])) for source in sources]
    sources, of_sizes = _of_one_size(table, sources)
    notes += of_sizes
    values, more = _per_step(table, sources, trained)
    evaluations = Evaluations.of_rows([
        (int(at), name, *value, "" if value[-1] else UNKNOWN_ERROR) for (at, name), value in sorted(values.items())
    ])  # fmt: skip
    return table.noting(*notes, *more, evaluations=evaluations)


def _columns(table: LogTable) -> tuple[list[_EvaluatedColumn], list[str]]:
    """Every column that was evaluated apart, and those of training in rows that are held out; and notes.

    Values that were copied onto the rows after them count once.
    """
    columns, trainer, placed = table.columns, table.trainer, np.isfinite(table.step)
    sources = []
    for key, name in table.evaluated.items():
        if not keys.VERSION.fullmatch(name):
            own = key.startswith(("val-core", "val-aux"))
            metric = key if own else trainer.metric(name, usual=True) or name
            sources.append(_EvaluatedColumn(key, metric, ~np.isnan(columns[key]) & table.chosen & placed))
    for key in table.training if table.held_out.any() else ():
        if key not in CLOCKS:
            metric = trainer.metric(key, usual=True) or key
            sources.append(_EvaluatedColumn(key, metric, table.held_out & ~np.isnan(columns[key]) & placed))
    copied = 0
    for k, source in enumerate(sources):
        if (rows := copies(np.where(source.rows, columns[source.key], np.nan))) is not None:
            sources[k] = replace(source, rows=source.rows & ~rows)
            copied += 1
    note = f"values of {copied} evaluations were copied onto the rows after them; each counts once"
    return sources, [note] if copied else []


def _of_one_size(table: LogTable, sources: list[_EvaluatedColumn]) -> tuple[list[_EvaluatedColumn], list[str]]:
    """The columns with the evaluations of one size alone, where the log shows that it changed; and a note of it."""
    named = {table.evaluated.get(source.key): table.columns[source.key] for source in sources}
    seconds, rate = named.get("runtime"), named.get("samples_per_second")
    if seconds is None or rate is None:
        return sources, []
    samples = seconds * rate
    rows = np.flatnonzero((samples > 0) & np.logical_or.reduce([source.rows for source in sources]))
    if not len(rows) or samples[rows].max() < _OTHER_SIZE * samples[rows].min():
        return sources, []
    alike = [np.abs(np.log(samples[rows] / samples[row])) < math.log(_OTHER_SIZE) for row in rows]
    most = int(np.argmax([samples[rows][same].sum() for same in alike]))
    others = rows[~alike[most]]
    of_others, usual = sorted({round(float(samples[row])) for row in others}), samples[rows[most]]
    note = (
        f"evaluations at {len(others)} steps, the first at step {table.step[others[0]]:g}, are on "
        f"{' or '.join(f'{count:,}' for count in of_others[:3])} samples and the others on {usual:,.0f} "
        "(runtime × samples per second): scores on other problems do not compare, and those on "
        f"{usual:,.0f} are kept"
    )
    without = np.ones(len(samples), bool)
    without[others] = False
    return [replace(source, rows=source.rows & without) for source in sources], [note]


def _per_step(
    table: LogTable, sources: Sequence[_EvaluatedColumn], trained: Bools
) -> tuple[dict[tuple[float, str], tuple[float, float, int]], list[str]]:
    """(step, metric) -> its value, of several games, environments or data sets at one step their mean, with its
    standard error and number of problems (NaN and 0 where not known); and notes.

    Each counts by its number of problems where all of them have one, else alike. GAMES or more rows that are held out
    are problems alike, so that their scatter gives the error. What was evaluated again after a restart replaces what
    was evaluated before it.
    """
    columns, step, counts, notes = table.columns, table.step, _counts(table), []
    rows: dict[tuple[float, str], list[tuple[int, str]]] = {}
    for source in sources:
        for row in np.flatnonzero(source.rows).tolist():
            rows.setdefault((float(step[row]), source.metric), []).append((row, source.key))
    training = np.flatnonzero(trained & np.isfinite(step))
    restarts = training[1:][np.diff(step[training]) < 0]
    values: dict[tuple[float, str], tuple[float, float, int]] = {}
    again, several = 0, 0
    for name, every in rows.items():
        if len(every) == 1:  # as nearly always
            values[name] = (float(columns[every[0][1]][every[0][0]]), math.nan, 0)
            continue
        attempts = np.searchsorted(restarts, [row for row, _ in every], "right")
        last = [cell for cell, attempt in zip(every, attempts, strict=True) if attempt == attempts.max()]
        again += len(every) - len(last)
        several += len(last) if len(last) > 1 else 0
        weights = counts[[row for row, _ in last]]
        cells = [columns[key][row] for row, key in last]
        with np.errstate(invalid="ignore"):
            weighted = bool((weights > 0).all())
            mean = float(np.average(cells, weights=weights if weighted else None))
        games = len(cells) >= GAMES and not weighted and all(table.held_out[row] for row, _ in last)
        error = (float(np.std(cells, ddof=1)) / math.sqrt(len(cells)), len(cells)) if games else (math.nan, 0)
        values[name] = (mean, *error)
    if again:
        notes.append(f"{again} evaluations repeat a step after a restart; the last of each step are kept")
    if several:
        notes.append(f"{several} evaluations are several of one metric at a step; the mean of each step is used")
    return values, notes


def _counts(table: LogTable) -> Floats:
    """The number of problems (N,) that each row was evaluated on, NaN where it is not logged."""
    counts = np.full(len(table.lines), math.nan)
    for key, column in table.columns.items():
        if _COUNT.fullmatch(table.evaluated.get(key, key).rpartition("/")[2]):
            counts = np.where(np.isnan(counts), column, counts)
    return counts


NOTHING: Mapping[str, float] = {
    "mismatch/k1": 0, "mismatch/k2": 0, "mismatch/k3": 0, "mismatch/log_ratio": 0, "mismatch/abs": 0,
    "mismatch/abs_max": 0, "mismatch/mult_error": 1, "mismatch/prob_diff": 0, "mismatch/chi2_token": 0,
    "mismatch/chi2_sequence": 0, "importance/ratio": 1, "importance/weight": 1, "importance/weight_min": 1,
    "importance/weight_max": 1, "importance/ess": 1, "staleness/mean": 0, "staleness/max": 0,
}  # fmt: skip
"""Metric -> its value in every row where it measures nothing."""

FEWEST = 3
"""Rows below which a column that never moves may be chance."""


def _environments(table: LogTable) -> LogTable:
    """The run of each text of a column such as env, where that tells the rows of a step apart, or tasks in turn."""
    log, step, busy = table.log, table.step, table.busy
    scoped = scopes.labelled(log, step, busy & table.rewarded) if log.rows.labels else None
    turned = None
    if scoped is None and log.rows.labels and table.rewarding:
        turned = scopes.in_turn(log, step, table.columns[table.rewarding[0]], busy & table.rewarded)
    key, of_row = scoped or turned or ("", {})
    if not key:
        return table
    own = {name: column for name, column in table.columns.items() if name != "step"} | {"step": step}
    if scoped is None:  # a row of a task is a mean over as many steps as a row of the log
        log = replace(
            log, window=log.window or max(int(np.median(np.diff(np.unique(step[busy & np.isfinite(step)])))), 1)
        )
    hints, runs = replace(table.hints, run=None, average=False), {}
    for text in dict.fromkeys(of_row.values()):
        rows = np.zeros(len(step), bool)
        rows[[row for row, other in of_row.items() if other == text]] = True
        if (rows & busy).any():
            name = f"{log.name or log.source.resolve().name}, {text}"
            runs[text] = normalize(scopes.part(log, own, rows, table.lines, name), hints)
    told = visible(key, 40)
    note = f"{len(runs)} rows per step, distinguished by {told}: the run is their mean, and each is a scope of its own"
    if scoped is None:
        note = (
            f"rows of {len(runs)} tasks in turn, at levels of their own, distinguished by {told}: each is judged alone"
        )
    return table.noting(note, parts=runs)


def _settings_and_window(table: LogTable) -> LogTable:
    """The settings of the trainer, and the number of steps that a row is the mean over, from the distance of rows."""
    settings = table.trainer.settings_of(table.log.logged, table.log.measured, table.hints.settings)
    step = table.table["step"]
    if table.log.window or not table.trainer.windowed or len(step) < 3:
        return replace(table, settings=settings, window=table.log.window or 1)
    window = int(np.median(np.diff(step)))
    note = f"each row is the mean over {window} steps (logging_steps), which hides spikes and lowers variances"
    return table.noting(*[note] * (window > 1), settings=settings, window=max(window, 1))


def _metrics_of_keys(table: LogTable) -> LogTable:
    """The metric of each key, without those that measure nothing or are logged wrongly, and what follows from several.

    A key that had a name which the user gives to another is “NAME (as logged)”.
    """
    defined, assumptions = table.trainer.definitions(table.table, table.settings, table.window)
    nothing = [
        key for key, metric in defined.items()
        if metric in NOTHING and key in table.table and _is_always(table.table[key], NOTHING[metric])
    ]  # fmt: skip
    wrong = TRAINERS.get(table.engine, generic.GENERIC).defects_in(table.table, table.settings)
    without = {*nothing, *(key for defect in wrong if defect.left_out for key in defect.keys)}
    meant = {
        key: metric for key, metric in defined.items() if key not in without and metric not in table.given
    }  # fmt: skip
    for metric, key in table.given.items():
        if metric != "step":
            if metric in table.table and key != metric:
                meant[metric] = f"{metric} (as logged)"
            meant[key] = metric
    notes = [_of_nothing(table, nothing, defined)] if nothing else []
    notes += _never_a_number(table, meant)
    return table.noting(
        *notes, *map(str, wrong), *assumptions,
        defined=meant, made=table.trainer.worked_out(table.table, meant),
        defects=tuple(defect.name for defect in wrong),
    )  # fmt: skip


def _is_always(column: Floats, value: float) -> bool:
    there = column[~np.isnan(column)]
    return len(there) >= FEWEST and bool((there == value).all())


def _never_a_number(table: LogTable, meant: Mapping[str, str]) -> list[str]:
    """That a column which is measured of the policy was written as NaN in every row, a sentence for each."""
    columns = {key: table.table[key] for key, metric in meant.items() if metric in MEASURED and key in table.table}
    return [
        f"{visible(table.key_in_log(key), 60)} is NaN in all {len(column)} rows, and is treated as not measured: so "
        "it is where its coefficient is 0; where its term is in the loss, print the loss of one batch: it may be lost "
        "there"
        for key, column in columns.items()
        if is_written_nan(column).all()
    ]


def _of_nothing(table: LogTable, keys: list[str], metrics: Mapping[str, str]) -> str:
    """That the keys are taken as not measured, in a sentence. metrics: key -> metric."""
    some = ", ".join(f"{visible(table.key_in_log(key), 60)} ({NOTHING[metrics[key]]:g})" for key in keys[:6])
    more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
    return f"equal in every row to the last digit, so treated as not measured: {some}{more}"


READING: tuple[Callable[[LogTable], LogTable], ...] = (
    *NAMING,
    *ROWS,
    scopes.one_run,
    _environments,
    *PER_STEP,
    _settings_and_window,
    _metrics_of_keys,
    _evaluations_of_steps,
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
    own = {defined.get(key, key): column for key, column in table.table.items()}
    made = {name: column.values for name, column in table.made.items()}
    name = log.name or log.source.resolve().name
    run = Run(
        meta=Meta(log.source, table.engine, name, log.status, tuple(dict.fromkeys(notes))),
        config={"engine": table.engine, "settings": table.settings, "logged": log.logged},
        table=trainer.with_terms(own | made, table.settings),
        groups=log.groups or no_groups(),
        evaluations=table.evaluations,
        rollouts=log.rollouts,
        summary=table.summary,
        keys={
            **{defined.get(key, key): raw.get(key, key) for key in table.table if key in defined or key in raw},
            **{name: column.formula for name, column in table.made.items()},
        },
        segments=tuple(_segment(table, segment) for segment in table.segments),
        unknown={**log.rows.texts, **table.sparse},
        window=table.window,
        reading=Reading(
            step=table.key_in_log(table.given["step"]) if "step" in table.given else log.step_key,
            rows=int((table.busy | table.scored | table.held_out).sum()),
            left_out=log.left_out.count,
            examples=tuple(f"line {line}: {visible(text.strip(), 80)}" for line, text in log.left_out.first),
            defects=table.defects,
        ),
    )
    if table.parts or trainer.scoped is None:
        return replace(run, scopes=table.parts)
    return replace(run, scopes=scopes.of_columns(run, trainer, table.table, table.settings))


def _segment(table: LogTable, segment: Segment) -> Segment:
    """An attempt under our names, with the metrics that follow from several of its columns."""
    made = table.trainer.worked_out(segment.table, {})
    own = {table.defined.get(key, key): column for key, column in segment.table.items()}
    return replace(segment, table=own | {name: made[name].values for name in table.made if name in made})
