"""Result of a reader: the rows of a log gathered into columns, and what else the log says (`RawLog`).

Rows may have different keys. Those with the same keys are converted together, which costs less than parsing them did.
Keys whose values are not numbers are counted, with examples; keys too sparse for a column of their own are kept as
`Sparse`, so that a log with a new key in every line does not fill the memory.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import WRITTEN_NAN, WRITTEN_NULL, json_number
from grposcope.core.not_finite import Bools, is_written_nan
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Floats, Groups, Ints, Sparse, Texts
from grposcope.logs.text_numbers import written_number
from grposcope.maths import dead_groups

TOGETHER = 4096
"""Number of rows that are converted at a time."""

CELLS = 1 << 26
"""Largest number of values in the dense table, 512 MiB; the sparsest keys beyond it become Sparse."""

RUNS = ("run", "run_id", "run_name", "experiment", "experiment_name", "exp_name")
"""Keys whose text says of which run a row is; it is no number, whatever its characters."""

KINDS = 12
"""Different texts up to which a key may say what kind of row it is."""

DEPTH = 6
"""Depth of nested objects down to which keys are joined."""

_NUMBERS = frozenset((int, float, bool, type(None)))
_PARTS = 32  # pieces of a column that are put together when a builder is copied
_EXAMPLES, _SHOWN, _MOST_LABELS, _LINES_SHOWN = 5, 200, 1_000_000, 3


class ColumnBuilder:
    """Columns under construction, filled by rows and by blocks of rows; N rows in the end.

    texts: key -> its values that are not numbers. labels: key -> row -> text, of the keys RUNS and of those with
    KINDS different texts at most.
    """

    def __init__(self) -> None:
        self.texts: dict[str, Texts] = {}
        self.labels: dict[str, dict[int, str]] = {}
        self._kinds: dict[str, set[str]] = {}
        self._parts: dict[str, list[tuple[Ints, Floats]]] = {}
        self._lines: list[Ints] = []
        self._count = 0
        self._waiting: dict[tuple[str, ...], list[tuple[int, list[Any]]]] = {}
        self._numbers: dict[tuple[str, ...], tuple[list[int], list[Floats]]] = {}
        self._names: tuple[str, ...] = ()  # of the last row of numbers, whose lists are in _last
        self._last: tuple[list[int], list[Floats]] = ([], [])
        self._waiting_lines: list[int] = []

    def __len__(self) -> int:
        return self._count

    def present(self) -> set[str]:
        """Keys that have any number so far."""
        self._convert()
        return set(self._parts)

    def row(self, line: int, values: Mapping[str, Any]) -> None:
        """Add one row, which stands in line `line` of the log; nested objects become keys joined by "/".

        Numbers are put together at once, in the order of the keys; a null is WRITTEN_NULL. What is neither, or a number
        beyond any float, waits until its column is converted.
        """
        row: Floats | None
        try:
            row = np.frombuffer(_doubles(len(values)).pack(*values.values())) if values else np.empty(0)
        except (OverflowError, struct.error):  # beyond any float; or a null, or no number
            row = _column(list(values.values()))
        if row is None:
            if not _NUMBERS.issuperset(map(type, values.values())):
                values = {key: _brief(value) for key, value in leaves(values)}
            self._waiting.setdefault(tuple(values), []).append((self._count, list(values.values())))
        else:
            if (names := tuple(values)) != self._names or not self._numbers:
                self._names = names
                self._waiting.setdefault(names, [])
                self._numbers.setdefault(names, ([], []))
                self._last = self._numbers[names]
            self._last[0].append(self._count)
            self._last[1].append(row)
        self._waiting_lines.append(line)
        self._count += 1
        if len(self._waiting_lines) >= TOGETHER:
            self._convert()

    def block(
        self, lines: Ints, columns: Mapping[str, Floats], texts: Mapping[str, Sequence[str | None]] | None = None
    ) -> None:
        """Add N rows with the same columns (N,), NaN where a row lacks one; texts (N) have None there.

        lines (N,): where the rows stand in the log.
        """
        self._convert()
        for name, values in (texts or {}).items():
            there = [k for k, value in enumerate(values) if value is not None]
            self._texts(name, [self._count + k for k in there], lines[there].tolist(), [values[k] for k in there])
        rows = np.arange(self._count, self._count + len(lines))
        for name, column in columns.items():
            self._parts.setdefault(name, []).append((rows, column))
        self._lines.append(lines)
        self._count += len(lines)

    def finish(self) -> tuple[Ints, dict[str, Floats], dict[str, Sparse]]:
        """Line of each row (N,); columns (N,), NaN where there is no value; and the keys too sparse for a column.

        The builder is empty afterwards.
        """
        self._convert()
        lines = np.concatenate(self._lines) if self._lines else np.empty(0, np.int64)
        sizes = {name: sum(len(rows) for rows, _ in parts) for name, parts in self._parts.items()}
        room = max(CELLS // max(self._count, 1), 1)
        dense = set(sorted(sizes, key=lambda name: -sizes[name])[:room]) if len(sizes) > room else set(sizes)
        columns, sparse = {}, {}
        for name, parts in self._parts.items():
            if name in dense:
                columns[name] = np.full(self._count, math.nan)
                for rows, values in parts:
                    together = len(rows) and rows[-1] - rows[0] + 1 == len(rows)
                    columns[name][slice(rows[0], rows[-1] + 1) if together else rows] = values
            else:
                sparse[name] = Sparse(*(np.concatenate(both) for both in zip(*parts, strict=True)))
            parts.clear()
        return lines, columns, sparse

    def copy(self) -> ColumnBuilder:
        """A builder with the same rows, to be finished while this one takes further rows."""
        self._convert()
        for name, parts in self._parts.items():
            if len(parts) > _PARTS:
                rows, values = (np.concatenate(both) for both in zip(*parts, strict=True))
                self._parts[name] = [(rows, values)]
        if len(self._lines) > _PARTS:
            self._lines = [np.concatenate(self._lines)]
        other = ColumnBuilder()
        other.texts = dict(self.texts)
        other.labels = {name: dict(of_row) for name, of_row in self.labels.items()}
        other._kinds = {name: set(kinds) for name, kinds in self._kinds.items()}
        other._parts = {name: list(parts) for name, parts in self._parts.items()}
        other._lines, other._count = list(self._lines), self._count
        return other

    def _convert(self) -> None:
        if not self._waiting_lines:
            return
        first = self._count - len(self._waiting_lines)
        self._lines.append(np.array(self._waiting_lines, np.int64))
        for names, rows in self._waiting.items():
            if names in self._numbers:
                of_rows, numbers = self._numbers.pop(names)
                at, table = np.array(of_rows, np.int64), np.array(numbers).T
                for name, column in zip(names, table, strict=True):
                    self._parts.setdefault(name, []).append((at, column))
            if not rows:
                continue
            places = np.array([place for place, _ in rows], np.int64)
            for name, values in zip(names, zip(*(values for _, values in rows), strict=True), strict=True):
                column = _column(values)
                if column is not None:
                    self._parts.setdefault(name, []).append((places, column))
                else:
                    self._mixed(name, places, values, first)
        self._waiting.clear()
        self._waiting_lines.clear()

    def _mixed(self, name: str, places: Ints, values: Sequence[Any], first: int) -> None:
        numbers = [_number(name, value) for value in values]
        good = np.array([value is not None for value in numbers], bool)
        if good.any():
            column = np.array([value for value in numbers if value is not None], np.float64)
            self._parts.setdefault(name, []).append((places[good], column))
        bad: list[int] = np.flatnonzero(~good).tolist()
        rows = places[bad].tolist()
        self._texts(name, rows, [self._waiting_lines[row - first] for row in rows], [values[k] for k in bad])

    def _texts(self, name: str, rows: Sequence[int], lines: Sequence[int], values: Sequence[Any]) -> None:
        """Count values that are not numbers, in the order of their lines; keep the first few, and all labels."""
        if not values:
            return
        known = self.texts.get(name, Texts(0, lines[0], ()))
        examples = list(known.examples)
        for value in values:
            if len(examples) == _EXAMPLES:
                break
            if (shown := str(_brief(value))) not in examples:
                examples.append(shown)
        self.texts[name] = Texts(known.count + len(values), min(known.line, lines[0]), tuple(examples))
        kinds = self._kinds.setdefault(name, set())
        if len(kinds) <= KINDS or name in RUNS:
            labels = self.labels.setdefault(name, {})
            for row, value in zip(rows, values, strict=True):
                if isinstance(value, str) and len(labels) < _MOST_LABELS:
                    labels[row] = value[:_SHOWN]
                    kinds.add(labels[row])
            if len(kinds) > KINDS and name not in RUNS:
                del self.labels[name]


@dataclass
class LeftOut:
    """Lines of a text that are no rows: how many, and the first few with their numbers."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, text: str) -> None:
        """Count a line, in any order."""
        self.count += 1
        if len(self.first) < _LINES_SHOWN or line < self.first[-1][0]:
            self.first = sorted([*self.first, (line, text[:_SHOWN])])[:_LINES_SHOWN]


@dataclass
class RawLog:
    """A log as its reader found it; `logs.normalize` makes a Run of it.

    rows:      the metrics under the keys of the log.
    engine:    name of the trainer, "" to recognise it by the keys.
    canonical: whether the keys are already our names, as where a reader made the metrics itself.
    notes:     what was left out or assumed, a sentence each.
    logged:    the configuration as the trainer logged it.
    measured:  settings under our names that the content shows, such as the group size; any other source goes first.
    place:     what the number of a row counts: line, row, entry.
    window:    optimiser steps that each row is the mean over, None to take it from the distance of the rows.
    left_out:  lines of a text that are no rows. step_key: what was taken as the step where it is no key.
    name:      of the run, "" for that of the file or folder.
    numbered:  whether the reader itself chose the run of this number (`Hints.run`).
    """

    source: Path
    rows: ColumnBuilder
    engine: str = ""
    canonical: bool = False
    status: str = "unknown"
    notes: list[str] = field(default_factory=list)
    logged: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    groups: Groups | None = None
    rollouts: Mapping[int, tuple[Rollout, ...]] = field(default_factory=dict)
    window: int | None = None
    place: str = "line"
    left_out: LeftOut = field(default_factory=LeftOut)
    step_key: str = ""
    name: str = ""
    numbered: bool = False


COMPUTED = "the metrics are computed from the rollouts, because the log has no others"
"""Note on a log that is made of rollouts."""


def log_of_groups(
    source: Path, engine: str, groups: Groups, rollouts: Mapping[int, tuple[Rollout, ...]], notes: list[str],
    failures: Mapping[int, float] = MappingProxyType({}),
) -> RawLog:  # fmt: skip
    """A log whose metrics are made of its groups: reward, reward_std within groups (ddof 1), dead_fraction; the mean of
    each part of the reward that all rollouts of a step have; and failures, the share of the tools' answers of each step
    that read as errors, where messages have any.

    The reward of a step with a reward that was written as NaN is one too.
    UserError where there is no group.
    """
    if not len(groups):
        raise UserError(f"{source} holds no groups of rollouts; give the folder that the trainer writes them to")
    rows, sizes = ColumnBuilder(), groups.sizes
    starts = groups.offsets[:-1]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.add.reduceat(groups.rewards, starts) / sizes
        spread = np.sqrt(np.add.reduceat((groups.rewards - np.repeat(mean, sizes)) ** 2, starts) / (sizes - 1))
    lost = np.logical_or.reduceat(is_written_nan(groups.rewards), starts)
    dead = dead_groups.is_dead_ragged(groups.rewards, groups.offsets)
    parts = _summed(groups)
    for step in np.unique(groups.step):
        here = groups.step == step
        rows.row(
            int(step),
            {
                "step": int(step),
                "reward": WRITTEN_NAN if lost[here].any() else float(np.average(mean[here], weights=sizes[here])),
                "reward_std": float(np.mean(spread[here][sizes[here] > 1])) if (sizes[here] > 1).any() else np.nan,
                "dead_fraction": float(dead[here].mean()),
                "rollouts_trained": int(sizes[here].sum()),
                **_means(parts, np.repeat(here, sizes)),
                **({"agent/call_failures": failures[int(step)]} if int(step) in failures else {}),
            },
        )
    return RawLog(
        source,
        rows,
        engine,
        canonical=True,
        notes=[*notes, COMPUTED],
        measured={"group": int(sizes[0])} if (sizes == sizes[0]).all() else {},
        groups=groups,
        rollouts=rollouts,
        place="step",
    )


_FITTED = 4096
"""Rollouts from which it is read what the reward is a sum of: where it is one, so many show the weights exactly."""


def _summed(groups: Groups) -> dict[str, Floats]:
    """The parts that the rewards are a weighted sum of, each by rollout; empty where they are no such sum of several.

    What a trainer writes beside the reward, such as a number of turns, has no weight in it.
    """
    parts = {name: values for name, values in groups.components.items() if not np.isnan(values).all()}
    there = np.isfinite([groups.rewards, *parts.values()]).all(0)
    rows = np.flatnonzero(there)[:_FITTED]
    if len(parts) < 2 or len(rows) <= len(parts):
        return {}
    columns, rewards = np.array([values[rows] for values in parts.values()]).T, groups.rewards[rows]
    weights = np.linalg.lstsq(columns, rewards, rcond=None)[0]
    if not np.allclose(columns @ weights, rewards, atol=1e-4 * max(float(np.abs(rewards).max()), 1e-12)):
        return {}
    summed = {name: parts[name] for name, weight in zip(parts, weights, strict=True) if abs(weight) > 1e-3}
    return summed if len(summed) > 1 else {}


def _means(parts: Mapping[str, Floats], rows: Bools) -> dict[str, float]:
    """Mean of each part of the reward that all of these rollouts have."""
    own = {name: values[rows] for name, values in parts.items()}
    return {f"component/{name}": float(np.mean(values)) for name, values in own.items() if not np.isnan(values).any()}


def _column(values: Sequence[Any]) -> Floats | None:
    """Numbers and nulls as a float64 array; None if there is anything else, or a number larger than any float."""
    if not _NUMBERS.issuperset(map(type, values)):
        return None
    try:
        return np.array([WRITTEN_NULL if value is None else value for value in values], np.float64)
    except OverflowError:
        return None


@lru_cache
def _doubles(count: int) -> struct.Struct:
    return struct.Struct(f"{count}d")


def _number(name: str, value: Any) -> float | None:
    """A JSON value as a number, also one in quotes; None for anything else, and for the name of a run."""
    if isinstance(value, str) and name not in RUNS and (written := written_number(value)) is not None:
        return written
    return WRITTEN_NULL if value is None else json_number(value)


def _brief(value: Any) -> Any:
    """A value shortened until it is converted: long texts and lists would fill the memory."""
    if isinstance(value, str):
        return value[:_SHOWN]
    if isinstance(value, list | dict):
        return f"{'list' if isinstance(value, list) else 'object'} of {len(value)}"
    return value


def flat(values: Mapping[str, Any], depth: int = DEPTH) -> dict[str, Any]:
    """A nested object as a flat one, with keys joined by "/"; objects deeper than `depth` stay as they are."""
    return dict(leaves(values, depth))


def leaves(values: Mapping[str, Any], depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """(joined key, value) in the order of the text; unlike in `flat`, a joined key may occur twice."""
    for key, value in values.items():
        if isinstance(value, dict) and depth:
            for inner, part in leaves(value, depth - 1):
                yield f"{key}/{inner}", part
        else:
            yield key, value
