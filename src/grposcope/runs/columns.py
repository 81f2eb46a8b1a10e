"""Rows of a log gathered into columns: a row at a time or in blocks, whatever keys each has.

Rows with the same keys are converted together, which costs less than parsing them did. Keys whose
values are no numbers are counted and shown; keys too sparse for a column of their own are kept apart,
so that a log with a new key in every line does not fill the memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from grposcope.runs.run import Floats, Ints, Sparse, Texts

TOGETHER = 4096
"""Rows that are converted at a time."""

CELLS = 1 << 26
"""Values of a dense table, 512 MiB; the sparsest keys beyond it become Sparse."""

LABELS = ("split", "phase", "mode", "run", "run_id", "run_name", "experiment", "type")
"""Keys of text that say what a row is, whose values are kept by row."""

DEPTH = 6
"""Objects within objects whose keys are joined."""

_NUMBERS = frozenset((int, float, bool, type(None)))
_EXAMPLES, _SHOWN, _KEPT_LABELS = 5, 200, 100_000
_WORDS = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
}


class Frame:
    """A table under construction; N rows in the end.

    texts: key -> its values that are no numbers. labels: key of LABELS -> row -> text.
    nonfinite: key -> values recorded as NaN, null or infinite, among rows given one at a time.
    """

    def __init__(self) -> None:
        self.texts: dict[str, Texts] = {}
        self.labels: dict[str, dict[int, str]] = {}
        self._parts: dict[str, list[tuple[Ints, Floats]]] = {}
        self._lines: list[Ints] = []
        self._count = 0
        self._waiting: dict[tuple[str, ...], list[tuple[int, list[Any]]]] = {}
        self._waiting_lines: list[int] = []

    def __len__(self) -> int:
        return self._count

    def row(self, line: int, values: Mapping[str, Any]) -> None:
        """Add one row; nested objects become keys joined by "/"."""
        for value in values.values():
            if not isinstance(value, (float, int)) and value is not None:
                values = {key: _brief(value) for key, value in flat(values).items()}
                break
        self._waiting.setdefault(tuple(values), []).append((self._count, list(values.values())))
        self._waiting_lines.append(line)
        self._count += 1
        if len(self._waiting_lines) >= TOGETHER:
            self._convert()

    def block(
        self, lines: Ints, columns: Mapping[str, Floats], texts: Mapping[str, Sequence[str | None]] | None = None
    ) -> None:
        """Add many rows with the same columns, NaN where a row lacks one, and texts, None where it does."""
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
        """Line of each row (N,), the columns (N,) with NaN where there is no value, and what is too sparse."""
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
                    columns[name][rows] = values
            else:
                sparse[name] = Sparse(*(np.concatenate(both) for both in zip(*parts, strict=True)))
            parts.clear()
        return lines, columns, sparse

    def _convert(self) -> None:
        if not self._waiting_lines:
            return
        first = self._count - len(self._waiting_lines)
        self._lines.append(np.array(self._waiting_lines, np.int64))
        for names, rows in self._waiting.items():
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
        numbers = [number(value) for value in values]
        good = np.array([value is not None for value in numbers], bool)
        if good.any():
            kept = np.array([value for value in numbers if value is not None], np.float64)
            self._parts.setdefault(name, []).append((places[good], kept))
        bad: list[int] = np.flatnonzero(~good).tolist()
        rows = places[bad].tolist()
        self._texts(name, rows, [self._waiting_lines[row - first] for row in rows], [values[k] for k in bad])

    def _texts(self, name: str, rows: Sequence[int], lines: Sequence[int], values: Sequence[Any]) -> None:
        """Count values that are no numbers, in the order of their lines, and keep the first few and all labels."""
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
        if name in LABELS:
            kept = self.labels.setdefault(name, {})
            for row, value in zip(rows, values, strict=True):
                if isinstance(value, str) and len(kept) < _KEPT_LABELS:
                    kept[row] = value[:_SHOWN]


def _column(values: Sequence[Any]) -> Floats | None:
    """Numbers and null as an array; None if there is anything else, or a number larger than any float."""
    if not _NUMBERS.issuperset(map(type, values)):
        return None
    try:
        return np.array(values, np.float64)
    except OverflowError:
        return None


def _brief(value: Any) -> Any:
    """What is kept of a value until it is converted: long texts and lists would fill the memory."""
    if isinstance(value, str):
        return value[:_SHOWN]
    if isinstance(value, list | dict):
        return f"{'list' if isinstance(value, list) else 'object'} of {len(value)}"
    return value


def number(value: Any) -> float | None:
    """A JSON value as a number: null and the strings of non-finite numbers too; None for what is no number."""
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if value is None:
        return math.nan
    return _WORDS.get(value) if isinstance(value, str) else None


def flat(values: Mapping[str, Any], depth: int = DEPTH) -> dict[str, Any]:
    """Nested objects as one, keys joined by "/"; what is deeper than `depth` stays as it is."""
    return dict(leaves(values, depth))


def leaves(values: Mapping[str, Any], depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Keys and values in order as `flat` joins them, also those that `flat` would put under one key."""
    for key, value in values.items():
        if isinstance(value, dict) and depth:
            for inner, part in leaves(value, depth - 1):
                yield f"{key}/{inner}", part
        else:
            yield key, value
