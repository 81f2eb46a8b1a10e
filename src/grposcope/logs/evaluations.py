"""Scores of evaluations: of keys such as eval_reward, and of rows that are labelled as held out.

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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from grposcope.core.run import Bools, Evaluations, Floats
from grposcope.logs import keys
from grposcope.logs.keys import CLOCKS
from grposcope.logs.per_step import copies
from grposcope.logs.table import LogTable

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


def evaluations_of_steps(table: LogTable) -> LogTable:
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
