"""Kinds of rows by the texts of a column: training, evaluation, and others.

Kinds are told apart by a text column such as split or event. It splits the rows where one of its texts is a word for
evaluation, and the column is called so (`keys.KINDS`) or another of its texts is a word for training. Rows of
evaluation leave the training. Of the others, those that contradict the rows of training at the same step are no parts
of it: without the reward, the values that contradict are left out, with it the rows are. Nothing of different kinds is
averaged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Bools, Floats
from grposcope.core.text import listed, number, visible
from grposcope.logs import keys

_TRAINING = frozenset(("train", "training", "trainer", "rl", "grpo", "ppo", "rlvr"))
_OTHER_TRAINING = frozenset(
    ("sft", "supervised", "pretrain", "pretraining", "warmstart", "bc", "distill", "distillation")
)


@dataclass
class Kinds:
    """Rows (N,) of evaluation, rows that are left out, and values that are (key -> rows), with a note for each."""

    held_out: Bools
    left_out: Bools
    blanked: list[tuple[str, Bools]]
    notes: list[str]


@dataclass(frozen=True)
class Cells:
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


def split(key: str, of_row: Mapping[int, str], table: Cells, kinds: Kinds) -> None:
    """Add what one text column (row -> text) says to `kinds`; UserError where two texts might be the training."""
    rows = _rows_of(of_row, len(table.step))
    named = key.rpartition("/")[2].lower() in keys.KINDS
    training = [text for text in rows if _words(text) & _TRAINING and not _words(text) & keys.WORDS]
    held_out = [text for text in rows if _words(text) & keys.WORDS and not _words(text) & _TRAINING]
    if not named and not training:
        return
    for text in held_out:
        evaluations(_said(key, text), rows[text], kinds)
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


def evaluations(told: str, rows: Bools, kinds: Kinds) -> None:
    """Take rows (N,) as evaluations; told: what says so, for the note."""
    new = rows & ~kinds.held_out
    kinds.held_out |= rows
    if new.any():
        kinds.notes.append(f"{int(new.sum())} rows with {told} are evaluations")


def _main(key: str, training: Sequence[str], rest: Mapping[str, Bools], table: Cells) -> list[str]:
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


def _beside(told: str, rows: Bools, text: str, main: Bools, table: Cells, kinds: Kinds) -> None:
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


def _rewards_differ(table: Cells, rows: Bools, others: Bools) -> bool:
    return any(_differ(table.columns[key], table.step, rows, others) for key in table.rewards)


def _once_a_step(table: Cells, rows: Bools) -> bool:
    steps = table.step[rows & _rewarded(table) & np.isfinite(table.step)]
    return len(np.unique(steps)) == len(steps)


def _rewarded(table: Cells) -> Bools:
    there: Bools = np.logical_or.reduce([~np.isnan(table.columns[key]) for key in table.rewards])
    return there


def _shown(text: str, rows: Bools, table: Cells) -> str:
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
