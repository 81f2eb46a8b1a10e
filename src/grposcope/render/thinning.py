"""Columns for charts: long runs are thinned so that nothing extreme is lost, and several runs are joined.

The thin line of a chart goes through the smallest and the largest value of each bin of steps, the thick one through
the mean of each window of steps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.core.answer import Columns
from grposcope.core.run import Floats, Ints, Run

BINS = 300
"""Bins of the thin line, which has at most two points in each."""

WINDOWS = 80
"""Approximate number of points of the thick line."""


def extremes(values: Floats, bins: int = BINS) -> Ints:
    """Indices to keep of a long column: smallest and largest value of each of `bins` bins, first and last.

    All indices of a column of at most 2·bins values. A bin without finite values keeps its first index.
    """
    n = len(values)
    if n <= 2 * bins:
        return np.arange(n)
    edges = np.linspace(0, n, bins + 1).astype(np.int64)
    keep = {0, n - 1}
    for start, stop in itertools.pairwise(edges):
        window = values[start:stop]
        finite = np.flatnonzero(np.isfinite(window))
        if len(finite):
            keep |= {int(start + finite[window[finite].argmin()]), int(start + finite[window[finite].argmax()])}
        else:
            keep.add(int(start))
    return np.array(sorted(keep))


def window_size(runs: Sequence[Run], windows: int = WINDOWS) -> int:
    """Steps per point of the thick line, the same for all runs, so that their curves are equally smooth."""
    return max(1, math.ceil(max(run.steps for run in runs) / windows))


def window_edges(n: int, size: int) -> NDArray[np.int64]:
    """Edges of windows of `size` rows over n rows; the windows are smaller if there would be fewer than ten."""
    size = max(1, min(size, n // 10))
    return np.append(np.arange(0, n, size), n) if n else np.zeros(1, np.int64)


def averages(step: Floats, values: Floats, size: int) -> dict[str, list[Any]]:
    """Mean, least and largest finite value per window of `size` rows, at the middle of its steps; None without any."""
    rows = []
    for start, stop in itertools.pairwise(window_edges(len(step), size)):
        finite = values[start:stop][np.isfinite(values[start:stop])]
        measures = (finite.mean(), finite.min(), finite.max()) if len(finite) else (math.nan,) * 3
        middle = float(step[start] + step[stop - 1]) / 2
        rows.append((*rounded([middle, *measures]), span(step[start], step[stop - 1])))
    return columns(("step", "mean", "least", "largest", "steps"), rows)


def span(first: float, last: float) -> str:
    """Text of a range of steps, such as 1,001-2,000, or of a single step."""
    return f"{int(first):,}" if first == last else f"{int(first):,}-{int(last):,}"


def rounded(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """Values with few significant digits; None for what is not finite, which JSON lacks."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values]


def columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Rows as a data set: a list per column."""
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def joined(parts: Sequence[Columns], names: Sequence[str], key: str = "run") -> dict[str, list[Any]]:
    """Data sets with equal columns as one, with the name of each part as the further column `key`."""
    data: dict[str, list[Any]] = {column: [] for columns in parts[:1] for column in (*columns, key)}
    for columns, name in zip(parts, names, strict=True):
        for column, values in columns.items():
            data[column] += values
        data[key] += [name] * len(next(iter(columns.values())))
    return data
