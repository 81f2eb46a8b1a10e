"""Did a metric change, by how much and since when: tests that autocorrelated noise does not fool. Ours.

The mean curve is continuous and linear between a few knots, close together early on, where training changes
most; the noise is that of `noise`. A comparison is a linear function of the curve: late − early (did it
rise?), late − ρ early (did it fall below the share ρ?), late − c (is it above c?). Series longer than BLOCKS rows
are averaged in blocks first, which loses nothing that happens slowly, and keeps time linear in rows.

A collapse may be abrupt, and a curve that cannot jump would take it for wandering. Where a level shift is evident
beyond doubt (JUMP), the curve has one.

The onset is the posterior of where a broken line (level, then ramp to the end) breaks.

Size and power: docs/diagnosis.md, tests/diagnosis/test_trends.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from grposcope.diagnosis.noise import Array, Columns, Design, Regression, Tested, prepare, scan
from grposcope.errors import UserError

BLOCKS = 300
"""Longer series are averaged down to at most this many blocks."""

LEAST = 8
"""Fewer rows than this cannot be tested."""

JUMP = 1e-3
"""p-value, times the rows tried, below which the mean curve is given a level shift."""

EDGE = 4
"""Rows at either end within which there is none."""

EARLY, LATE = (0.0, 0.15), (0.8, 1.0)
"""The shares of the run that are compared."""

HALF_LATE = (0.6, 1.0)
"""LATE as a share of the second half."""


def blocks(y: Array, most: int = BLOCKS) -> Array:
    """Means of equal blocks, at most `most` of them; the first block takes what does not divide."""
    size = -(-len(y) // most)
    if size == 1:
        return y
    spare = len(y) % size
    head = [y[:spare].mean()] if spare else []
    return np.concatenate([head, y[spare:].reshape(-1, size).mean(1)])


def knots(n: int) -> tuple[float, ...]:
    """Where the mean curve may bend: more often the more rows there are."""
    if n < 40:
        return (0.0, 1.0)
    return (0.0, 0.2, 0.5, 1.0) if n < 90 else (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)


@lru_cache(maxsize=16)
def _design(n: int) -> Design:
    return Design(_hats(n))


def _hats(n: int) -> Array:
    at, share = knots(n), (np.arange(n) + 0.5) / n
    return np.array([np.interp(share, at, row) for row in np.eye(len(at))]).T


@dataclass(frozen=True)
class Curve:
    """A metric's mean curve with its uncertainty; made by `fit`. n: rows before averaging in blocks."""

    regression: Regression
    hats: Array
    n: int

    def window(self, span: tuple[float, float]) -> Array:
        """The mean over the share [a, b] of the run, as weights of the coefficients."""
        share = (np.arange(len(self.hats)) + 0.5) / len(self.hats)
        inside = (share >= span[0]) & (share <= span[1])
        if not inside.any():
            inside = np.abs(share - sum(span) / 2) == np.abs(share - sum(span) / 2).min()
        return np.asarray(self.hats[inside].mean(0))

    def level(self, span: tuple[float, float] = LATE, above: float = 0.0) -> Tested:
        """The mean over `span` minus `above`."""
        return self.regression.test(self.window(span), above)

    def change(
        self,
        first: tuple[float, float] = EARLY,
        last: tuple[float, float] = LATE,
        ratio: float = 1.0,
        minus: float = 0.0,
    ) -> Tested:
        """Mean over `last` minus `ratio` × mean over `first`, minus a constant."""
        return self.regression.test(self.window(last) - ratio * self.window(first), minus)

    @property
    def phi(self) -> float:
        """Autocorrelation of the noise at lag 1 between rows (or blocks), s φ."""
        return self.regression.phi * self.regression.share


def fit(y: Array) -> Curve:
    """The mean curve of finite values y (n,); UserError for fewer than LEAST."""
    if len(y) < LEAST:
        raise UserError(f"{len(y)} rows are too few to test for a trend, at least {LEAST} are needed; log more steps")
    averaged = blocks(np.asarray(y, np.float64))
    design = _design(len(averaged))
    jump = _jump(averaged)
    if jump is not None:
        design = Design(np.column_stack([design.x, np.arange(len(averaged)) >= jump]))
    return Curve(design.regress(averaged), design.x, len(y))


def _jump(y: Array) -> int | None:
    """Row of a level shift so evident that noise shows one in fewer than JUMP of all series; None without one."""
    if len(y) < 5 * EDGE or np.ptp(y) == 0:
        return None
    rows, columns, design = _steps(len(y))
    seen = scan(design, columns, y)
    best = int(np.argmin(seen.p))
    return int(rows[best]) if seen.p[best] * len(rows) < JUMP else None


@lru_cache(maxsize=8)
def _steps(n: int) -> tuple[NDArray[np.int64], Columns, Design]:
    design = Design(_hats(n), coarse=True)
    rows = np.arange(EDGE, n - EDGE + 1)
    return rows, prepare(design, (np.arange(n) >= rows[:, None])[:, None, :].astype(np.float64)), design


@dataclass(frozen=True)
class Onset:
    """Row where a change begins, median and 95 % interval of its posterior."""

    row: int
    low: int
    high: int


def onset(y: Array) -> Onset:
    """Where the last lasting change of y begins: level, then a ramp, so that the break is the onset."""
    averaged = blocks(np.asarray(y, np.float64), 128)
    n = len(averaged)
    breaks = range(1, n - 2)
    weight = _broken(averaged)
    total = np.cumsum(weight)
    rows = [breaks[min(int(np.searchsorted(total, q)), len(breaks) - 1)] * len(y) / n for q in (0.5, 0.025, 0.975)]
    return Onset(*(round(r) for r in rows))


def _broken(y: Array) -> Array:
    """Posterior over the break of max(0, row − b), given a constant, noises integrated out."""
    columns, design = _ramps(len(y))
    return scan(design, columns, y).posterior


@lru_cache(maxsize=8)
def _ramps(n: int) -> tuple[Columns, Design]:
    design = Design(np.ones((n, 1)), coarse=True)
    rows = np.arange(n, dtype=np.float64)
    ramps = np.array([np.maximum(rows - b, 0.0) / (n - b) for b in range(1, n - 2)])
    return prepare(design, ramps[:, None, :]), design
