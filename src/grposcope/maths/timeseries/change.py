"""Did a metric change, and by how much: tests that hold under autocorrelated noise.

Method of this project; no publication.

The mean curve is continuous and linear between a few knots, close together early on, where training changes
most; the noise is that of `noise`, or of `mean_curve` where its white part is known. A comparison is a linear function
of the curve: late − early (did it rise?), late − ρ early (did it fall below the share ρ?), late − c (is it above c?).
Series longer than BLOCKS rows are averaged in blocks first, which loses nothing that happens slowly, and keeps time
linear in rows.

A straight line (`fit_line`) says more where the curve has no bends, since bends and wandering look alike. A single
level shift (`sudden`) says more of a drop within a few rows. Where a shift is evident beyond doubt (SHIFT) beside the
bends, the curve has one: a curve that cannot bend as fast would take it for wandering.

Size and power: benchmarks/diagnosis.md, tests/maths/timeseries/test_change.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from grposcope.core.errors import UserError
from grposcope.maths.timeseries import change_points, mean_curve
from grposcope.maths.timeseries.change_points import LevelShift
from grposcope.maths.timeseries.mean_curve import SamplingVariance
from grposcope.maths.timeseries.noise import Array, Candidates, Contrast, Design, Regression, prepare, scan

BLOCKS = 300
"""Longer series are averaged down to at most this many blocks."""

LEAST = 8
"""Rows that a test needs at least."""

SHIFT = 1e-3
"""p-value, times the number of shifts tried, below which the mean curve is given one."""

BENDS = 0.05
"""p-value below which bends of the mean curve are evident, so that no straight line is fitted."""

EDGE = 4
"""Rows at either end within which no level shift begins or ends."""

EARLY, LATE = (0.0, 0.15), (0.8, 1.0)
"""Shares of the run that are compared by default."""

FIRST = (0.0, 0.05)
"""The first rows, for what may have collapsed within EARLY already."""


def block_means(y: Array, most: int = BLOCKS) -> Array:
    """Means of equal blocks, at most `most` of them; the first block takes what does not divide."""
    size = -(-len(y) // most)
    if size == 1:
        return y
    spare = len(y) % size
    head = [y[:spare].mean()] if spare else []
    return np.concatenate([head, y[spare:].reshape(-1, size).mean(1)])


def _knots(n: int) -> tuple[float, ...]:
    """Shares of the run at which the mean curve may bend; there are more of them the more rows there are."""
    if n < 40:
        return (0.0, 1.0)
    return (0.0, 0.2, 0.5, 1.0) if n < 90 else (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)


def _hats(n: int) -> Array:
    at, share = _knots(n), (np.arange(n) + 0.5) / n
    return np.array([np.interp(share, at, row) for row in np.eye(len(at))]).T


@dataclass(frozen=True)
class MeanCurve:
    """A metric's mean curve with its uncertainty; made by `fit`. n: rows before averaging in blocks.

    regression: of the coefficients of `columns` (n blocks, K).
    """

    regression: Regression
    columns: Array
    n: int

    @property
    def if_white(self) -> MeanCurve:
        """The curve if its noise were white, of a variance judged from the rows: it takes wandering for change."""
        return replace(self, regression=self.regression.under(0))

    def window(self, span: tuple[float, float]) -> Array:
        """The mean over the share [a, b] of the run, as weights of the coefficients."""
        share = (np.arange(len(self.columns)) + 0.5) / len(self.columns)
        inside = (share >= span[0]) & (share <= span[1])
        if not inside.any():
            inside = np.abs(share - sum(span) / 2) == np.abs(share - sum(span) / 2).min()
        return np.asarray(self.columns[inside].mean(0))

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


def fit(y: Array, sampling: SamplingVariance | None = None) -> MeanCurve:
    """The mean curve of finite values y (n,), which bends at the knots; UserError for fewer than LEAST.

    sampling: the variance that a row of y has because its rollouts are drawn anew, where it is known.
    """
    averaged = _averaged(y)
    shift = _evident_shift(averaged)
    return _curve(_bent(len(averaged), shift), averaged, len(y), sampling)


def fit_line(y: Array, sampling: SamplingVariance | None = None) -> MeanCurve | None:
    """As `fit`, a straight line instead of the curve that bends; None where bends are evident (BENDS)."""
    averaged = _averaged(y)
    line, coarse, bends = _straight(len(averaged), _evident_shift(averaged))
    if bends is not None and float(scan(coarse, bends, averaged)[0][0]) < BENDS:
        return None
    return _curve(line, averaged, len(y), sampling)


def sudden(y: Array) -> LevelShift | None:
    """The likeliest shift between two levels, within a quarter of the rows; None if y is too short or constant."""
    averaged = _averaged(y)
    if len(averaged) < 5 * EDGE or np.ptp(averaged) == 0:
        return None
    return change_points.scan(_shifts(len(averaged), level=True), averaged)


def _averaged(y: Array) -> Array:
    if len(y) < LEAST:
        raise UserError(f"{len(y)} rows are too few to test for a trend, at least {LEAST} are needed; log more steps")
    return block_means(np.asarray(y, np.float64))


def _curve(design: Design, averaged: Array, n: int, sampling: SamplingVariance | None) -> MeanCurve:
    of_blocks = None if sampling is None else sampling.of_blocks(n / len(averaged))
    return MeanCurve(mean_curve.regress(design, averaged, of_blocks), design.x, n)


Shift = tuple[int, int]
"""First row and duration of a level shift."""


def _evident_shift(averaged: Array) -> Shift | None:
    """The level shift of a series beside its bends, if one is evident beyond doubt."""
    n = len(averaged)
    if n < 5 * EDGE or np.ptp(averaged) == 0:
        return None
    seen = change_points.scan(_shifts(n), averaged)
    return (seen.start, seen.width) if seen.p < SHIFT else None


@lru_cache(maxsize=16)
def _straight(n: int, shift: Shift | None) -> tuple[Design, Design, Candidates | None]:
    """A line, the same under coarse noises, and the bends that it may lack, for a test; None where n allows none."""
    columns = np.column_stack([np.ones(n), (np.arange(n) + 0.5) / n - 0.5, *_step(n, shift)])
    coarse, bends = Design(columns, coarse=True), _hats(n)[:, 1:-1].T
    return Design(columns), coarse, prepare(coarse, bends[None]) if len(bends) else None


@lru_cache(maxsize=16)
def _bent(n: int, shift: Shift | None) -> Design:
    return Design(np.column_stack([_hats(n), *_step(n, shift)]))


def _step(n: int, shift: Shift | None) -> Array:
    """Columns (0 or 1, n) of a shift."""
    chosen = [] if shift is None else [shift]
    start, width = np.array(chosen, np.int64).reshape(-1, 2).T
    return change_points.columns(n, start, width)


@lru_cache(maxsize=8)
def _shifts(n: int, level: bool = False) -> change_points.ShiftCandidates:
    """Shifts beside the bends of the mean curve, or, if `level`, beside a constant."""
    beside = np.ones((n, 1)) if level else _hats(n)
    return change_points.library(Design(beside, coarse=True), *change_points.candidates(n, EDGE))
