"""Did a metric change, by how much and since when: tests that hold under autocorrelated noise.

Method of this project; no publication.

The mean curve is continuous and linear between a few knots, close together early on, where training changes
most; the noise is that of `noise`. A comparison is a linear function of the curve: late − early (did it
rise?), late − ρ early (did it fall below the share ρ?), late − c (is it above c?). Series longer than BLOCKS rows
are averaged in blocks first, which loses nothing that happens slowly, and keeps time linear in rows.

A collapse may be abrupt or take a few rows, and a curve that cannot bend as fast would take it for wandering. Where a
level shift of some duration is evident beyond doubt (SHIFT), the curve has one.

The onset is the posterior of where the likeliest shift, of any duration, begins.

Size and power: docs/diagnosis.md, tests/timeseries/test_change.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from grposcope.errors import UserError
from grposcope.timeseries import change_points
from grposcope.timeseries.noise import Array, Contrast, Design, Regression

BLOCKS = 300
"""Longer series are averaged down to at most this many blocks."""

LEAST = 8
"""Rows that a test needs at least."""

SHIFT = 1e-3
"""p-value, times the number of shifts tried, below which the mean curve is given one."""

EDGE = 4
"""Rows at either end within which no level shift begins or ends."""

EARLY, LATE = (0.0, 0.15), (0.8, 1.0)
"""Shares of the run that are compared by default."""


def block_means(y: Array, most: int = BLOCKS) -> Array:
    """Means of equal blocks, at most `most` of them; the first block takes what does not divide."""
    size = -(-len(y) // most)
    if size == 1:
        return y
    spare = len(y) % size
    head = [y[:spare].mean()] if spare else []
    return np.concatenate([head, y[spare:].reshape(-1, size).mean(1)])


def knots(n: int) -> tuple[float, ...]:
    """Shares of the run at which the mean curve may bend; there are more of them the more rows there are."""
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
class MeanCurve:
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

    def level(self, span: tuple[float, float] = LATE, above: float = 0.0) -> Contrast:
        """The mean over `span` minus `above`."""
        return self.regression.test(self.window(span), above)

    def change(
        self,
        first: tuple[float, float] = EARLY,
        last: tuple[float, float] = LATE,
        ratio: float = 1.0,
        minus: float = 0.0,
    ) -> Contrast:
        """Mean over `last` minus `ratio` × mean over `first`, minus a constant."""
        return self.regression.test(self.window(last) - ratio * self.window(first), minus)


def fit(y: Array) -> MeanCurve:
    """The mean curve of finite values y (n,); UserError for fewer than LEAST."""
    if len(y) < LEAST:
        raise UserError(f"{len(y)} rows are too few to test for a trend, at least {LEAST} are needed; log more steps")
    averaged = block_means(np.asarray(y, np.float64))
    design = _design(len(averaged))
    if len(averaged) >= 5 * EDGE and np.ptp(averaged) > 0:
        seen = change_points.scan(_shifts(len(averaged)), averaged)
        if seen.p < SHIFT:
            column = change_points.columns(len(averaged), np.array([seen.start]), np.array([seen.width]))[0]
            design = Design(np.column_stack([design.x, column]))
    return MeanCurve(design.regress(averaged), design.x, len(y))


@lru_cache(maxsize=8)
def _shifts(n: int) -> change_points.ShiftCandidates:
    return change_points.library(Design(_hats(n), coarse=True), *change_points.candidates(n, EDGE, to_end=False))


@dataclass(frozen=True)
class Onset:
    """Row where a change begins, median and 95 % interval of its posterior."""

    row: int
    low: int
    high: int


def onset(y: Array) -> Onset:
    """Row where the change of y begins: the first of a shift from one level to another, of any duration."""
    averaged = block_means(np.asarray(y, np.float64), 128)
    n = len(averaged)
    library = _onsets(n)
    weight = np.bincount(library.start, change_points.scan(library, averaged).posterior)
    total = np.cumsum(weight / weight.sum())
    rows = [min(int(np.searchsorted(total, q)), n - 1) * len(y) / n for q in (0.5, 0.025, 0.975)]
    return Onset(*(round(r) for r in rows))


@lru_cache(maxsize=8)
def _onsets(n: int) -> change_points.ShiftCandidates:
    return change_points.library(Design(np.ones((n, 1)), coarse=True), *change_points.candidates(n, 1, to_end=True))
