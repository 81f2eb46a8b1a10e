"""Oscillation of a metric, and whether it grows: a line in the spectrum above autocorrelated noise.

Method of this project; no publication.

A damped oscillator near its limit (`instruments.dynamics.refresh`: multipliers near the unit circle) shows as
y_t = smooth + e^{γt} (a cos ωt + b sin ωt) + u_t, that is, as a pair of complex roots e^{γ ± iω}: |root| = e^γ < 1 dies
out, 1 stays, > 1 grows. The smooth part is a cubic plus saturating exponentials, so that a healthy rise is no
oscillation, and a level shift where one is evident (`change_points`), since what is left of one rings. u: `noise`.
Frequencies from CYCLES per series to one in FASTEST rows are tried at half the Fourier spacing, with a steady and a
growing envelope; the least p-value is multiplied by their number.

|root| comes from a scan over γ at the found ω, with a flat prior: posterior mean and sd per row.

Oscillations may start late, or be fast in a long run. So besides the whole series (averaged to WINDOW blocks) its
second half is searched, and, where blocks are longer than a row, its last WINDOW rows; p-values are multiplied by the
number of windows. `spectral_peak`, the detector of swings whose period changes, searches the same windows.

Noise whose spread grows along the series looks like growing swings, since few late rows count for most of it. Where
the spread plainly changes, swings must also be seen in the series that `evened` makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from grposcope.core.estimate import Estimate
from grposcope.maths.timeseries import change_points
from grposcope.maths.timeseries.change import EDGE, SHIFT, block_means
from grposcope.maths.timeseries.noise import (
    NO_WHITE,
    Array,
    Candidates,
    Design,
    cosine_variances,
    lag_of_differences,
    prepare,
    scan,
)

WINDOW = 200
"""Rows or blocks that are searched together."""

LEAST = 40
"""Least number of rows: a shorter series is not searched."""

FASTEST = 6.0
"""Shortest period, in rows or blocks."""

CYCLES = 3.0
"""Fewer cycles in a window are no oscillation but a bend."""

SHAPES = np.array([0.0, 4.0])
"""Envelopes γ × length of the window that are tried: steady, and growing by e⁴."""

SEEN = 1e-3
"""The whole series, which says most about growth, is preferred to its parts where its p-value is below this."""

PLAIN = 3.0
"""Standard errors from which on the spread of the rows changes along the series."""

OVERLAP = 1.5
"""Factor on the variance of a mean of log |second differences|, since successive ones overlap."""

GROWTH = np.linspace(-8.0, 8.0, 33)
"""Growth γ × length of the window: from dying out by e⁸ to growing by as much."""


@dataclass(frozen=True)
class Oscillation:
    """The strongest oscillation of a series.

    p: probability that noise alone shows one as strong. period in rows; amplitude at the end of the window, in the
    metric's unit; share of the detrended variance that it explains. root: modulus of the multiplier per row with
    its standard error; growing: p-value of "it does not grow" (γ ≤ 0), fading: of "it does not fade".
    first, last: rows of the window in which it was found.
    """

    p: float
    period: float
    amplitude: float
    share: float
    root: Estimate
    growing: float
    fading: float
    first: int
    last: int

    @staticmethod
    def none(n: int, first: int, last: int, reason: str) -> Oscillation:
        """No oscillation, p = 1, in a window of n rows or blocks that holds nothing to judge by."""
        return Oscillation(1.0, math.nan, 0.0, 0.0, Estimate(math.nan, math.nan, n, reason), 1.0, 1.0, first, last)


def windows(y: Array) -> list[tuple[int, int]]:
    """First row and end of each window: all rows, the second half, the last WINDOW; none if too few or constant."""
    n = len(y)
    if n < LEAST or np.ptp(y) == 0:
        return []
    spans = [(0, n)]
    if n >= 2 * LEAST:
        spans.append((n // 2, n))
    if n > WINDOW:
        spans.append((n - WINDOW, n))
    return spans


def trend_columns(n: int) -> Array:
    """Columns (n, 7) of the smooth trend that is no oscillation: a cubic and saturating exponentials."""
    share = (np.arange(n) + 0.5) / n
    powers = [share**k for k in range(4)]
    return np.array(powers + [np.exp(-share / tau) for tau in (0.03, 0.1, 0.3)]).T


def evened(y: Array) -> Array | None:
    """What y (n,) has beside its smooth trend, over its local spread; None where that does not plainly change.

    The spread is e^(a + b t), by regression of log |y₋ − 2 y₀ + y₊|, which swings of FASTEST rows and more hardly move;
    it changes plainly where |b| is PLAIN standard errors. Unequal spread is what the series and its swings are divided
    by, so swings that grow by more than the noise stay.
    """
    n = len(y)
    size = np.abs(np.diff(y, 2))
    if n < LEAST or not (size > 0).mean() > 0.5:
        return None
    at = (np.arange(1, n - 1) + 0.5) / n - 0.5
    at, logs = at[size > 0], np.log(size[size > 0])
    centred = at - at.mean()
    slope = float(centred @ logs / (centred @ centred))
    rest = logs - logs.mean() - slope * centred
    error = math.sqrt(OVERLAP * float(rest @ rest) / len(rest) / float(centred @ centred))
    if abs(slope) < PLAIN * error:
        return None
    trend, _ = np.linalg.qr(trend_columns(n))
    left = y - trend @ (trend.T @ y)
    return np.asarray(left / np.exp(slope * ((np.arange(n) + 0.5) / n - 0.5)))


def strongest(looks: Sequence[Oscillation], sure: float = 0.0) -> Oscillation | None:
    """The oscillation with the least p-value, times the number of windows looked at; None without windows.

    sure: p-value below which the first one, that of the whole series, is preferred.
    """
    if not looks:
        return None
    best = looks[0] if looks[0].p < sure else min(looks, key=lambda look: look.p)
    return replace(best, p=min(1.0, best.p * len(looks)))


def oscillation(y: Array) -> Oscillation | None:
    """The strongest oscillation of finite values y (n,) that keeps time; None if they are too few or constant."""
    return strongest([_look(y, first, last) for first, last in windows(y)], SEEN)


def _look(y: Array, first: int, last: int) -> Oscillation:
    part = block_means(y[first:last], WINDOW)
    part = part - part.mean()
    n, per = len(part), (last - first) / len(part)
    if np.ptp(part) == 0:
        return Oscillation.none(n, first, last - 1, "constant")
    shift, averaged = _shift(part), lag_of_differences(part) > NO_WHITE
    cycles, columns, design = _lines(n, shift, averaged)
    tests, _ = scan(design, columns, part)
    best = int(np.argmin(tests))
    p, at = min(1.0, float(tests[best]) * len(tests)), float(cycles[best // len(SHAPES)])
    envelope = _envelopes(n, at, shift, averaged)
    _, chances = scan(design, envelope, part)
    gamma = float(chances @ GROWTH)
    sd = math.sqrt(max(float(chances @ (GROWTH - gamma) ** 2), (GROWTH[1] - GROWTH[0]) ** 2 / 12))
    growing = float(chances[GROWTH <= 0].sum())
    fading = float(chances[GROWTH >= 0].sum())
    amplitude, share = _size(part, design, at, gamma)
    root = Estimate(math.exp(gamma / (n * per)), math.exp(gamma / (n * per)) * sd / (n * per), n)
    return Oscillation(p, n * per / at, amplitude, share, root, growing, fading, first, last - 1)


Shift = tuple[int, int]
"""First row and duration of a level shift."""


def _shift(array: Array) -> Shift | None:
    """The level shift of a window, if it is evident beyond doubt."""
    seen = change_points.scan(_shifts(len(array)), array)
    return (seen.start, seen.width) if seen.p < SHIFT else None


@lru_cache(maxsize=8)
def _shifts(n: int) -> change_points.ShiftCandidates:
    return change_points.library(_design(n, None), *change_points.candidates(n, EDGE))


@lru_cache(maxsize=8)
def _design(n: int, shift: Shift | None, averaged: bool = False) -> Design:
    columns = trend_columns(n)
    if shift is not None:
        columns = np.column_stack([columns, change_points.columns(n, *(np.array([value]) for value in shift))[0]])
    return Design(np.linalg.qr(columns)[0], variances=cosine_variances(n, coarse=True, averaged=averaged)[0])


@lru_cache(maxsize=8)
def _lines(n: int, shift: Shift | None, averaged: bool) -> tuple[Array, Candidates, Design]:
    design = _design(n, shift, averaged)
    cycles = np.arange(2 * CYCLES, 2 * n / FASTEST + 1) / 2
    return cycles, prepare(design, _waves(n, cycles, SHAPES)), design


@lru_cache(maxsize=32)
def _envelopes(n: int, cycles: float, shift: Shift | None, averaged: bool) -> Candidates:
    return prepare(_design(n, shift, averaged), _waves(n, np.array([cycles]), GROWTH))


def _waves(n: int, cycles: Array, growth: Array) -> Array:
    """Candidates (len(cycles)·len(growth), 2, n) of cosine and sine with an envelope that ends at 1."""
    share = (np.arange(n) + 0.5) / n
    angle = 2 * np.pi * cycles[:, None] * share
    envelope = np.exp(growth[:, None] * (share - (growth[:, None] > 0)))
    both = np.stack([np.cos(angle), np.sin(angle)], 1)
    return np.asarray((both[:, None] * envelope[None, :, None]).reshape(-1, 2, n))


def _size(array: Array, design: Design, cycles: float, gamma: float) -> tuple[float, float]:
    """Amplitude at the end of the window, and the share of the detrended variance explained, by least squares."""
    waves = _waves(len(array), np.array([cycles]), np.array([gamma]))[0].T
    rest = array - design.x @ (design.x.T @ array)
    detrended = waves - design.x @ (design.x.T @ waves)
    weights = np.linalg.lstsq(detrended, rest, rcond=None)[0]
    left = rest - detrended @ weights
    amplitude = float(np.hypot(*weights)) * math.exp(min(gamma, 0.0))
    return amplitude, 1 - float(left @ left) / max(float(rest @ rest), 1e-300)
