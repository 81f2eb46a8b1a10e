"""Which rows of a log are what: their steps, and rows of training, of evaluation, and of the run as a whole.

Kinds of rows by the texts of a column: training, evaluation, and others.

Kinds are told apart by a text column such as split or event. It splits the rows where one of its texts is a word for
evaluation, and the column is called so (`keys.KINDS`) or another of its texts is a word for training. Rows of
evaluation leave the training. Of the others, those that contradict the rows of training at the same step are no parts
of it: without the reward, the values that contradict are left out, with it the rows are. Nothing of different kinds is
averaged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Bools, Floats
from grposcope.core.text import listed, number, visible
from grposcope.logs import keys
from grposcope.logs.columns import RUNS, ColumnBuilder
from grposcope.logs.keys import CLOCKS, STEPS
from grposcope.logs.naming import trained_keys
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


def _steps_as_logged(table: LogTable) -> LogTable:
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


def _rows_in_order(table: LogTable) -> LogTable:
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


def _kinds_of_rows(table: LogTable) -> LogTable:
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
    count, cells = len(table.step), _Cells(metrics, table.step, rewarding)
    kinds = _Kinds(np.zeros(count, bool), np.zeros(count, bool), [], [])
    for key, of_row in table.log.rows.labels.items():
        if key not in RUNS:
            try:
                _split(key, of_row, cells, kinds)
            except UserError as error:
                raise UserError(f"{table.log.source}: {error}") from None
    for key, column in metrics.items():
        flagged, values = column == 1, set(np.unique(column[np.isfinite(column)]).tolist())
        if _FLAG.fullmatch(key.rpartition("/")[2]) and values <= {0.0, 1.0} and 0 < flagged.sum() < count:
            _evaluations(f"{key} = 1", flagged, kinds)
    columns = dict(table.columns)
    for key, rows in kinds.blanked:
        columns[key] = np.where(rows, np.nan, columns[key])
    table = table.noting(*kinds.notes, columns=columns, rewarding=tuple(rewarding))
    rewarded = table.rows_with(rewarding or trained) & ~kinds.held_out
    return replace(table, held_out=kinds.held_out, left_out=kinds.left_out, rewarded=rewarded)


def _training_and_evaluation(table: LogTable) -> LogTable:
    """Keys and rows of training and of what was evaluated apart; a row without any value is one of training, too.

    The last row of transformers is taken out as the summary of the run.
    """
    columns = table.columns
    own = table.trainer.trained_on
    metrics = {key: column for key, column in columns.items() if key not in CLOCKS and not (own and own.fullmatch(key))}
    evaluated = _evaluated_keys(metrics, table.rewarded)
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


def _evaluated_keys(columns: Mapping[str, Floats], rewarded: Bools) -> dict[str, str]:
    """Key -> name without its prefix, of every key that was evaluated apart. rewarded (N,): rows with a reward."""
    found = {key: match["name"] for key in columns if (match := keys.BY_PATH.fullmatch(key))}
    most = int(rewarded.sum()) / 2
    for key, column in columns.items():
        if key not in found and (match := keys.BY_ROWS.fullmatch(key)) and (~np.isnan(column)).sum() <= most:
            found[key] = match["name"]
    apart = {np.isnan(columns[key]).tobytes() for key in found}
    for key, column in columns.items():
        if key not in found and keys.ANY_SCORE.fullmatch(key):
            absent = np.isnan(column)
            if absent.tobytes() in apart and (~absent & ~rewarded).any():
                found[key] = key
    return {key: found[key] for key in columns if key in found}


def _without_an_odd_first_row(table: LogTable) -> LogTable:
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


def _steps_of_every_row(table: LogTable) -> LogTable:
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


_TRAINING = frozenset(("train", "training", "trainer", "rl", "grpo", "ppo", "rlvr"))
_OTHER_TRAINING = frozenset(
    ("sft", "supervised", "pretrain", "pretraining", "warmstart", "bc", "distill", "distillation")
)


@dataclass
class _Kinds:
    """Rows (N,) of evaluation, rows that are left out, and values that are (key -> rows), with a note for each."""

    held_out: Bools
    left_out: Bools
    blanked: list[tuple[str, Bools]]
    notes: list[str]


@dataclass(frozen=True)
class _Cells:
    """What the rows hold: columns of metrics, their step (N,), and which of the columns are rewards."""

    columns: Mapping[str, Floats]
    step: Floats
    rewards: Sequence[str]

    def has(self, keys: Sequence[str], rows: Bools) -> bool:
        """Whether any of the keys has a value in these rows."""
        return any(bool((~np.isnan(self.columns[key]) & rows).any()) for key in keys)

    def contradicted(self, rows: Bools, others: Bools) -> list[str]:
        """Columns that have another value in `rows` than in `others` at the same step."""
        return [key for key in self.columns if _differ(self.columns[key], self.step, rows, others)]


def _rows_of(of_row: Mapping[int, str], count: int) -> dict[str, Bools]:
    """Text -> its rows (N,)."""
    rows: dict[str, Bools] = {}
    for row, text in of_row.items():
        rows.setdefault(text, np.zeros(count, bool))[row] = True
    return rows


def _split(key: str, of_row: Mapping[int, str], table: _Cells, kinds: _Kinds) -> None:
    """Add what one text column (row -> text) says to `kinds`; UserError where two texts might be the training."""
    rows = _rows_of(of_row, len(table.step))
    named = key.rpartition("/")[2].lower() in keys.KINDS
    training = [text for text in rows if _words(text) & _TRAINING and not _words(text) & keys.WORDS]
    held_out = [text for text in rows if _words(text) & keys.WORDS and not _words(text) & _TRAINING]
    if not named and not training:
        return
    for text in held_out:
        _evaluations(_said(key, text), rows[text], kinds)
    rest = {text: here for text, here in rows.items() if text not in held_out}
    if len(rest) > 1 or training:
        main = _main(key, training, rest, table)
        for text, here in rest.items():
            if text not in main:
                _beside(
                    _said(key, text),
                    here,
                    text,
                    np.logical_or.reduce([rest[name_of_kind] for name_of_kind in main]),
                    table,
                    kinds,
                )


def _said(key: str, text: str) -> str:
    return f"{visible(key, 40)} = {visible(text, 40)}"


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower().replace("held_out", "heldout").replace("held-out", "heldout")))


def _evaluations(told: str, rows: Bools, kinds: _Kinds) -> None:
    """Take rows (N,) as evaluations; told: what says so, for the note."""
    new = rows & ~kinds.held_out
    kinds.held_out |= rows
    if new.any():
        kinds.notes.append(f"{int(new.sum())} rows with {told} are evaluations")


def _main(key: str, training: Sequence[str], rest: Mapping[str, Bools], table: _Cells) -> list[str]:
    """Texts of the rows of training: those called so, else those with the reward; UserError where these contradict."""
    called = [text for text in training if table.has(table.rewards, rest[text])]
    if called:
        return called
    rewarded = [text for text, here in rest.items() if table.has(table.rewards, here)]
    rewarded = [text for text in rewarded if not _words(text) & _OTHER_TRAINING] or rewarded
    distinct = [
        text for text in rewarded
        if any(_rewards_differ(table, rest[text], rest[other]) for other in rewarded if other != text)
    ]  # fmt: skip
    if not distinct:
        return rewarded or list(rest)
    once = [text for text in distinct if _once_a_step(table, rest[text])]
    if len(once) != 1:
        some = listed([_shown(text, rest[text], table) for text in distinct[:6]])
        raise UserError(
            f"rows of one step have several values of {visible(key, 40)}, each with its own reward: {some}; "
            "give the rows of one value alone"
        )
    return [text for text in rewarded if text not in distinct] + once


def _beside(told: str, rows: Bools, text: str, main: Bools, table: _Cells, kinds: _Kinds) -> None:
    """Leave out rows, or values of rows, that are no parts of the training."""
    foreign = bool(_words(text) & _OTHER_TRAINING) and table.has(table.rewards, main)
    contradicted = table.contradicted(rows, main)
    if foreign or set(contradicted) & set(table.rewards):
        new = rows & ~kinds.left_out & ~kinds.held_out
        kinds.left_out |= rows
        if new.any():
            kinds.notes.append(f"{int(new.sum())} rows with {told} are left out: they are not training rows")
        return
    for key in contradicted:
        kinds.blanked.append((key, rows))
        kinds.notes.append(
            f"{visible(key, 60)} of the rows with {told} is left out: other rows of the step have another value"
        )


def _rewards_differ(table: _Cells, rows: Bools, others: Bools) -> bool:
    return any(_differ(table.columns[key], table.step, rows, others) for key in table.rewards)


def _once_a_step(table: _Cells, rows: Bools) -> bool:
    steps = table.step[rows & _rewarded(table) & np.isfinite(table.step)]
    return len(np.unique(steps)) == len(steps)


def _rewarded(table: _Cells) -> Bools:
    there: Bools = np.logical_or.reduce([~np.isnan(table.columns[key]) for key in table.rewards])
    return there


def _shown(text: str, rows: Bools, table: _Cells) -> str:
    key = next(key for key in table.rewards if table.has([key], rows))
    there = table.columns[key][rows & ~np.isnan(table.columns[key])]
    levels = f"{visible(key, 40)} {number(float(there[0]))} → {number(float(there[-1]))}"
    return f"{visible(text, 40)} ({len(there)} rows, {levels})"


def _differ(column: Floats, step: Floats, rows: Bools, others: Bools) -> bool:
    """Whether a column has different values in two sets of rows at a step that both have."""
    there = ~np.isnan(column) & np.isfinite(step)
    here, beside = np.flatnonzero(rows & there), np.flatnonzero(others & there)
    _, first, second = np.intersect1d(step[here], step[beside], return_indices=True)
    return bool((column[here[first]] != column[beside[second]]).any())


ROWS: tuple[Callable[[LogTable], LogTable], ...] = (
    _steps_as_logged,
    _rows_in_order,
    _kinds_of_rows,
    _training_and_evaluation,
    _without_an_odd_first_row,
    _steps_of_every_row,
)
"""Steps of reading that find the step of each row and what it is a row of, in order."""
