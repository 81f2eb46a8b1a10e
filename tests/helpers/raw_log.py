"""A log read by plain Python, without the package: what every sentence about it is recomputed from.

JSON lines, a CSV file, or the log_history of a trainer_state.json; a row that is no object is passed over. Where a step
comes again after a later one, the run was resumed, and all rows from that step on are those of the last attempt.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FIRST, LATE, LEAST = 0.15, 0.2, 3
"""The first level is the mean of the first 15 % of the rows, the last one of the last fifth, of three at least."""

Series = list[tuple[int, float]]
"""(step, value) of every row with a finite value."""


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, as they stand there."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return [{key: cell for key, cell in row.items() if cell != ""} for row in csv.DictReader(text.splitlines())]
    if path.suffix == ".json":
        return list(json.loads(text)["log_history"])
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def as_number(value: Any) -> float | None:
    """A value as a number; None where it is none. NaN and infinities are numbers, and null is NaN."""
    try:
        return None if isinstance(value, bool) else math.nan if value is None else float(value)
    except (TypeError, ValueError):
        return None


@dataclass
class RawLog:
    """The columns of a log by its own keys, each a list of (step, value), NaN and infinities included.

    names: what a sentence may call a metric -> the key of the log. scored: the same for held-out scores. shares: keys
    that are shares and may be logged in per cent. window: steps that a row is the mean of.
    scopes: environment -> its log.
    """

    columns: dict[str, Series]
    steps: list[int]
    names: Mapping[str, str]
    scored: Mapping[str, str] = field(default_factory=dict)
    shares: Sequence[str] = ()
    window: int = 1
    scopes: Mapping[str, RawLog] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Steps from the first row to the last, both counted."""
        return self.steps[-1] - self.steps[0] + self.window

    def finite(self, key: str) -> Series:
        """The finite values of a column; shares that were logged in per cent, as shares."""
        series = [(step, value) for step, value in self.columns.get(key, []) if math.isfinite(value)]
        if key in self.shares and in_percent([value for _, value in series]):
            return [(step, value / 100) for step, value in series]
        return series

    def values(self, key: str) -> list[float]:
        """The finite values of a column."""
        return [value for _, value in self.finite(key)]

    def first(self, key: str) -> float:
        """The first level of a column."""
        return mean_over(self.values(key), 0.0, FIRST)

    def last(self, key: str) -> float:
        """The last level of a column."""
        return mean_over(self.values(key), 1 - LATE, 1.0)

    def best(self, key: str) -> tuple[float, int]:
        """The best level of a fifth of the run, or the last one, and the step in its middle."""
        values, steps = self.values(key), [step for step, _ in self.finite(key)]
        parts = [(k / 10, k / 10 + 0.2) for k in range(7)]
        part = max(parts, key=lambda part: mean_over(values, *part))
        top = mean_over(values, *part)
        middle = steps[min(int(sum(part) / 2 * len(values)), len(values) - 1)]
        return (top, middle) if top > self.last(key) else (self.last(key), steps[-1])


def in_percent(values: Sequence[float]) -> bool:
    """Whether shares are written in per cent."""
    return (
        bool(values)
        and min(values) >= 0
        and 1 < max(values) <= 100
        and (max(values) == 100 or any(v % 1 for v in values))
    )


def window_rows(n: int, low: float, high: float, least: int = LEAST) -> range:
    """The rows of n whose middle is in a part of the run, `least` of them where there are as many."""
    rows = [i for i in range(n) if low - 1e-9 <= (i + 0.5) / n <= high + 1e-9]
    first, last = (rows[0], rows[-1] + 1) if rows else (0, 0)
    if not rows:
        first = last = min(round(low * n), n)
    least = min(least, n)
    if last - first < least:
        first = min(max((first + last - least) // 2, 0), n - least)
        last = first + least
    return range(first, last)


def mean_over(values: Sequence[float], low: float, high: float, least: int = LEAST) -> float:
    """The mean over a part of the run; NaN without values."""
    rows = window_rows(len(values), low, high, least) if values else ()
    return statistics.fmean(values[i] for i in rows) if rows else math.nan


def read_raw(
    path: Path, step_key: str, names: Mapping[str, str], scored: Mapping[str, str] | None = None,
    shares: Sequence[str] = (), flat: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: row,
) -> RawLog:  # fmt: skip
    """The columns of a file. flat: a row as one object of keys."""
    taken: list[tuple[int, dict[str, Any]]] = []
    for raw in rows_of(path):
        row = flat(raw)
        step = as_number(row.get(step_key, ""))
        if step is None:
            continue
        if taken and step < taken[-1][0]:
            taken = [(at, kept) for at, kept in taken if at < step]
        taken.append((int(step), row))
    keys = dict.fromkeys(key for _, row in taken for key in row)
    columns = {
        key: sorted(
            {step: value for step, row in taken if key in row and (value := as_number(row[key])) is not None}.items()
        )
        for key in keys
    }
    beside = {step_key, *(scored or {}).values()}
    steps = sorted({step for step, row in taken if not {k for k, v in row.items() if v is not None} <= beside
                    or not set(row) & set((scored or {}).values())})  # fmt: skip
    gaps = [b - a for a, b in itertools.pairwise(steps)]
    return RawLog(columns, steps, names, scored or {}, shares, min(gaps, default=1) if path.suffix == ".json" else 1)
