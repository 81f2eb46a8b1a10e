"""Since when a metric has changed: the first row at which its noise-free curve has made a tenth of its way.

Method of this project; no publication.

The curve goes from a level by up to CHANGES changes, each a step, a straight ramp, a way that bends upwards or an
exponential approach; the noise is that of `noise`, integrated over. The change that is asked for is the largest
movement of the fitted curve in the direction that is asked for, from the level before to the level after. Its onset is
the row at which it has made TENTH of that way, whatever limits it crosses there. The posterior of that row, over all
shapes of the change, over the likeliest shapes of the others and over the noises, gives the median and the 95 %
interval. Where a curve has a course of its own, which may grow, the change is the way that it goes from that course.

A change is dated if its F test, times the number of rows, has p < EVIDENT. A single odd row is none, and rows far from
their neighbours count as less far. Series longer than BLOCKS rows are averaged in blocks, to whose rows an onset is
known.

Coverage and errors on curves that know their onset: docs/diagnosis.md, benchmarks/onset.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.ndimage import median_filter
from scipy.special import fdtrc

from grposcope.maths.timeseries.noise import Array, Design, cosine_variances, robust_spread

TENTH = 0.1
"""Share of its way that a change has made at its onset."""

LEAST = 6
"""Rows below which nothing is dated."""

BLOCKS = 128
"""Longer series are averaged down to at most this many blocks."""

EVIDENT = 0.01
"""p-value, times the number of rows, below which a change is dated."""

CHANGES = 3
"""Changes that a curve may have."""

OTHERS = 8
"""Likeliest shapes of the other changes that are averaged over."""

UNLIKELY = 0.03
"""Likelihood of a noise over that of the likeliest below which it is left out in the end."""

NEIGHBOURS, ODD = 7, 3.5
"""Rows of the running median, and robust standard deviations from it beyond which a row counts as this far."""

PHI, SHARES = (0.4, 0.7, 0.9, 0.97), (0.4, 1.0)
"""Noises that are integrated over, beside white noise."""

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Rows that a step or ramp takes."""

SEEN, COURSES = 0.08, 3
"""Share of the rows in which a course is seen before anything goes from it; curves whose sums are such courses."""

TIMES = (1.5, 3, 6, 12, 24)
"""Time constants of exponential approaches in rows."""


@dataclass(frozen=True)
class Onset:
    """Row of an onset, median and 95 % interval of its posterior."""

    row: int
    low: int
    high: int


def onset(y: Array, direction: int = 0, course: bool = False) -> Onset | None:
    """Since when finite y (n,) has changed; None where no change is evident.

    direction: 1 for a rise, -1 for a fall, 0 for either. course: whether it has a course of its own, from which it goes.
    """
    y = np.asarray(y, np.float64)
    if len(y) < LEAST or np.ptp(y) == 0:
        return None
    rows = _blocks(len(y))
    averaged = np.add.reduceat(_without_odd(y), rows[:-1]) / np.diff(rows)
    series = _Series(*shapes_of(len(averaged), course), (averaged - averaged.mean()) / averaged.std())
    changes = series.changes()
    asked = series.asked(changes, direction)
    if asked is None:
        return None
    low, middle, high = series.likely(changes).quantiles(changes, *asked, (0.025, 0.5, 0.975))
    wider = (int(rows[-1] - rows[-2]) + 1) // 2
    first, last = max(int(rows[low]) - wider, 1), min(int(rows[high + 1]) - 1 + wider, len(y) - 1)
    return Onset(int(rows[middle] + rows[middle + 1] - 1) // 2, first, last)


def _blocks(n: int) -> NDArray[np.int64]:
    """First rows of the blocks, and n behind them."""
    size = -(-n // BLOCKS)
    return np.unique(np.append(np.arange(n, 0, -size), 0))


def _without_odd(y: Array) -> Array:
    """y (n,) with rows far from their neighbours brought nearer."""
    middle = median_filter(y, NEIGHBOURS, mode="reflect")
    spread = robust_spread(y - middle)
    return middle + np.clip(y - middle, -ODD * spread, ODD * spread) if spread > 0 else y


@dataclass(frozen=True)
class Noises:
    """What whitens rows of n values under each of M noises, and takes out the course (n, K) that is there anyway.

    roots (M, n), bases (M, n, K); base (M,): log-likelihood of each noise but for the squares that are left.
    """

    roots: Array
    bases: Array
    base: Array

    @property
    def df(self) -> int:
        """Degrees of freedom that the course leaves."""
        return self.bases.shape[1] - self.bases.shape[2]

    def whitened(self, rows: Array) -> Array:
        """Rows (R, n), whitened and without the course (M, R, n)."""
        z = dct(rows, axis=1, norm="ortho")
        return np.array([_without(z * root, basis) for root, basis in zip(self.roots, self.bases, strict=True)])


@dataclass(frozen=True)
class Shapes:
    """C shapes of a change of n rows: columns (C, n) from 0 to 1 at the last row, with log prior weights (C,).

    white (M, C, n): the columns whitened under each noise; squares (M, C): their squared lengths.
    """

    columns: Array
    prior: Array
    white: NDArray[np.float32]
    squares: Array

    @staticmethod
    def under(noises: Noises, columns: Array, prior: Array) -> Shapes:
        """The shapes, whitened."""
        white = noises.whitened(columns).astype(np.float32)
        return Shapes(columns, prior, white, np.maximum(np.einsum("mcn,mcn->mc", white, white), 1e-9).astype(float))


def _without(rows: Array, basis: Array) -> Array:
    return np.asarray(rows - (rows @ basis) @ basis.T)


@lru_cache(maxsize=4)
def shapes_of(n: int, course: bool) -> tuple[Noises, Shapes]:
    """The shapes of a change of n rows beside a level, or beside a course that grows."""
    base = np.column_stack([np.ones(n), *(_courses(n) if course else [])])
    design = Design(base, variances=cosine_variances(n, phi=PHI, shares=SHARES)[0])
    roots = np.sqrt(design.weights)
    bases = np.array([np.linalg.qr(design.z * root[:, None])[0] for root in roots])
    noises = Noises(roots, bases, design.base)
    return noises, Shapes.under(noises, *_columns(n, max(round(SEEN * n), 4) if course else 1))


def _courses(n: int) -> Array:
    """Curves (K, n) whose sums are near the logarithms of what grows at a rate of its own, ever slower, or levels off."""
    u = (np.arange(n) + 0.5) / n
    grown = [np.log(start + u**power) for start in (0.02, 0.05, 0.1, 0.3, 1.0) for power in (0.5, 1.0)]
    levelling = [np.log(start + 1 - np.exp(-u / time)) for start in (0.05, 0.2, 1.0) for time in (0.1, 0.2, 0.4)]
    family = np.array([*grown, *levelling, 3 * u])
    family = (family - family.mean(1, keepdims=True)) / family.std(1, keepdims=True)
    return np.linalg.svd(family, full_matrices=False)[2][:COURSES]


def _columns(n: int, first: int) -> tuple[Array, Array]:
    """Shapes of changes as columns (C, n) that end at 1, and the logarithms of their prior weights (C,).

    A start from row `first` on is as likely as any other, a duration by its logarithm, and so is each kind.
    """
    t = np.arange(n)[None, :]
    shapes: list[Array] = []
    weights: list[float] = []
    for width, gap in zip(WIDTHS, np.diff(np.log([*WIDTHS, 128])), strict=True):
        every = max(width // 8, 1)
        start = np.arange(first, n - width + (width > 1), every)[:, None]
        shapes.append(_ramps(t, start, width))
        weights += [gap * every] * len(start)
    to_end = np.arange(first, n - 2)[:, None]
    for power in (1, 2):
        shapes.append((np.maximum(t - to_end + 1, 0) / (n - to_end)) ** power)
        weights += [0.5] * len(to_end)
    for time in TIMES:
        start = np.arange(first, n - int(time))[:, None]
        shapes.append(_approaches(t, start, time))
        weights += [0.4] * len(start)
    return np.concatenate(shapes), np.log(weights)


def _ramps(t: Array, start: Array, width: Array | float) -> Array:
    ways = np.clip((t - start + 1) / width, 0, 1)
    return np.asarray(ways / ways[:, -1:])


def _approaches(t: Array, start: Array, time: Array | float) -> Array:
    ways = 1 - np.exp(-np.maximum(t - start + 1, 0) / time)
    return np.asarray(ways / ways[:, -1:])


def _bends(t: Array, start: Array, width: Array) -> Array:
    """Logistic curves from rows `start` on, of which nine tenths are within the middle 0.8 of the width."""
    ways = 1 / (1 + np.exp(np.clip(-(t - start + 1 - width / 2) * (7.4 / width), -30, 30)))
    ways = ways - ways[:, :1]
    return np.asarray(ways / ways[:, -1:])


@dataclass
class _Series:
    """A series y (n,) and what has been found about it. gains (M, C): of every shape; shared: shape -> its inner
    products (M, C) with all others."""

    noises: Noises
    shapes: Shapes
    y: Array
    white: Array = field(init=False)
    gains: Array = field(init=False)
    total: Array = field(init=False)
    shared: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.white = self.noises.whitened(self.y[None])[:, 0]
        self.gains = _inner(self.shapes, self.white)
        self.total = (self.white**2).sum(1)

    def products(self, shape: int) -> Array:
        """Inner products (M, C) of a shape with all shapes."""
        if shape not in self.shared:
            self.shared[shape] = _inner(self.shapes, self.shapes.white[:, shape])
        return self.shared[shape]

    def beside(self, others: Sequence[int], tried: Shapes | None = None) -> _Scan:
        """All shapes, or those that are `tried`, as a change beside these others."""
        shapes, k, noises = tried or self.shapes, len(others), self.noises
        own = self.gains if tried is None else _inner(shapes, self.white)
        if not k:
            return _Scan(shapes, own, shapes.squares, self.total, noises.base, noises.df)
        among = np.array([self.products(other) for other in others])  # (k, M, C)
        near = among if tried is None else np.array([_inner(tried, self.shapes.white[:, other]) for other in others])
        gram = among[:, :, list(others)].transpose(1, 0, 2) + 1e-6 * np.eye(k)
        inverse, of_others = np.linalg.inv(gram), self.gains[:, list(others)]
        weights = np.einsum("mij,jmc->imc", inverse, near)
        gains = own - np.einsum("imc,mi->mc", weights, of_others)
        squares = shapes.squares - (weights * near).sum(0)
        total = self.total - np.einsum("mi,mij,mj->m", of_others, inverse, of_others)
        base = noises.base - 0.5 * np.linalg.slogdet(gram)[1]
        return _Scan(shapes, gains, np.maximum(squares, 1e-9), total, base, noises.df - k)

    def changes(self) -> tuple[int, ...]:
        """The shapes of the changes that are evident, each beside the others."""
        chosen: tuple[int, ...] = ()
        for _ in range(min(CHANGES, max(self.noises.df // 4, 1))):
            chosen = self.settled((*chosen, self.beside(chosen).best))
            if len(chosen) > 1 and all(p >= EVIDENT for p in self.tests(chosen)):
                break
        while chosen:
            tests = self.tests(chosen)
            weakest = int(np.argmax(tests))
            if tests[weakest] < EVIDENT:
                break
            chosen = self.settled(_except(chosen, weakest))
        return chosen

    def likely(self, chosen: tuple[int, ...]) -> _Series:
        """The series under the noises alone that are likely beside these changes."""
        evidence = self.beside(chosen[1:]).evidence[:, chosen[0]]
        keep = np.flatnonzero(evidence > evidence.max() + np.log(UNLIKELY))
        noises = Noises(self.noises.roots[keep], self.noises.bases[keep], self.noises.base[keep])
        shapes = Shapes(self.shapes.columns, self.shapes.prior, self.shapes.white[keep], self.shapes.squares[keep])
        return _Series(noises, shapes, self.y)

    def tests(self, chosen: tuple[int, ...]) -> list[float]:
        """The p-value of each change beside the others."""
        return [self.beside(_except(chosen, k)).p(shape) for k, shape in enumerate(chosen)]

    def settled(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Several changes, each fitted anew beside the others until none moves, or thrice."""
        for _ in range(3):
            before = chosen
            for k in range(len(chosen)):
                others = _except(chosen, k)
                chosen = (*others[:k], self.beside(others).best, *others[k:])
            if chosen == before or len(chosen) < 2:
                break
        return chosen

    def asked(self, chosen: tuple[int, ...], direction: int) -> tuple[int, float] | None:
        """Which of the changes begins the largest movement in a direction, and its own way done at the onset."""
        if not chosen:
            return None
        noise = int(np.argmax(self.beside(chosen[1:]).evidence[:, chosen[0]]))
        x = self.shapes.white[noise, list(chosen)]
        sizes = np.linalg.lstsq(x.T, self.white[noise], rcond=None)[0]
        columns = np.column_stack([np.zeros(len(chosen)), self.shapes.columns[list(chosen)]])
        level = sizes @ columns
        moves = [_largest(sign * level) for sign in (1, -1) if direction in (0, sign)]
        far, sign, first, at = max((move[0], k, *move[1:]) for k, move in zip((1, -1) if not direction else (direction,), moves, strict=True))
        done = sign * sizes * (columns[:, at] - columns[:, first])
        target = int(np.argmax(done))
        if far <= 0 or done[target] <= 0:
            return None
        own = (TENTH * far - (done.sum() - done[target])) / abs(sizes[target])
        return target, float(np.clip(own, TENTH / 5, 1 - TENTH))

    def quantiles(self, chosen: tuple[int, ...], target: int, done: float, shares: Sequence[float]) -> list[int]:
        """Quantiles of the row at which a change has made the share `done` of its way."""
        others = _except(chosen, target)
        sets = {tuple(sorted(others))}
        for k in range(len(others)):
            rest = _except(others, k)
            likely = self.beside((*rest, chosen[target])).marginal
            sets |= {tuple(sorted((*rest, int(shape)))) for shape in np.argsort(-likely)[:OTHERS]}
        finer = _finer(self.noises, self.shapes.columns[chosen[target]])
        marginals = np.array([
            np.concatenate([self.beside(one).marginal, self.beside(one, finer).marginal]) for one in sets
        ])  # fmt: skip
        weight = np.exp(marginals - marginals.max()).sum(0)
        rows = np.argmax(np.concatenate([self.shapes.columns, finer.columns]) >= done - 1e-9, axis=1)
        total = np.cumsum(np.bincount(rows, weight, minlength=len(self.y)))
        return [int(np.searchsorted(total, share * total[-1])) for share in shares]


def _inner(shapes: Shapes, white: Array) -> Array:
    """Inner products (M, C) of shapes with one whitened row (M, n) under each noise."""
    return np.asarray((shapes.white @ white.astype(np.float32)[:, :, None])[:, :, 0], np.float64)


def _finer(noises: Noises, column: Array) -> Shapes:
    """Shapes that differ less from the shape `column` (n,), and from one another, than those that are tried first."""
    t, start = np.arange(len(column))[None, :], int(np.argmax(column > 0))
    lasts = max(int(np.argmax(column >= 0.9)) - start + 1, 1)
    at, factor = (each.reshape(-1, 1) for each in np.meshgrid(np.linspace(-0.6, 0.6, 15), np.geomspace(0.5, 2, 15)))
    width = np.maximum(lasts / 0.9 * factor, 1.0)
    begin = start + at * max(lasts, 2)
    time = np.maximum(0.45 * lasts * factor, 0.7)
    cell = max(lasts, 2) * 1.2 / 14 * np.log(2) / 7
    columns = np.concatenate([_ramps(t, begin, width), _approaches(t, begin, time), _bends(t, begin, width)])
    prior = np.log(np.repeat([cell, 0.58 * cell, cell], len(at)))
    return Shapes.under(noises, columns, prior)


def _largest(way: Array) -> tuple[float, int, int]:
    """The largest rise of a curve (n,): its size, its first row, and the row at which a tenth of it is made."""
    far = way - np.minimum.accumulate(way)
    end = int(np.argmax(far))
    first = end - int(np.argmin(way[end::-1]))  # the last row at the lowest level
    return float(far[end]), first, first + int(np.argmax(way[first : end + 1] >= way[first] + TENTH * far[end]))


def _except(chosen: tuple[int, ...], k: int) -> tuple[int, ...]:
    return chosen[:k] + chosen[k + 1 :]


@dataclass(frozen=True)
class _Scan:
    """Each shape as a change beside others: gains and squares (M, C), the squares left without it (M,)."""

    shapes: Shapes
    gains: Array
    squares: Array
    total: Array
    base: Array
    df: int

    def explained(self, shape: slice | int = slice(None)) -> Array:
        """Squares that shapes explain beyond the others; 0 where the others leave nothing of a shape."""
        squares = self.squares[:, shape]
        usable = squares > 1e-4 * self.shapes.squares[:, shape]
        total = self.total if isinstance(shape, int) else self.total[:, None]
        return np.where(usable, np.minimum(self.gains[:, shape] ** 2 / squares, (1 - 1e-6) * total), 0.0)

    @property
    def evidence(self) -> Array:
        """Log-likelihood (M, C) of each shape under each noise, with its prior."""
        left = np.maximum(self.total[:, None] - self.explained(), 1e-9)
        lengths = np.maximum(self.squares, 1e-4 * self.shapes.squares)
        return np.asarray(
            self.base[:, None] + self.shapes.prior - 0.5 * np.log(lengths) - 0.5 * (self.df - 1) * np.log(left)
        )

    @property
    def marginal(self) -> Array:
        """The same (C,), all noises taken together."""
        evidence = self.evidence
        most = evidence.max()
        return np.asarray(np.log(np.exp(evidence - most).sum(0) + 1e-300) + most)

    @property
    def best(self) -> int:
        """The likeliest shape."""
        return int(np.argmax(self.marginal))

    def p(self, shape: int) -> float:
        """p-value of this shape, averaged over the noises, times the number of rows."""
        df, explained = self.df - 1, self.explained(shape)
        left = np.maximum(self.total - explained, 1e-9)
        evidence = self.base - 0.5 * np.log(np.maximum(self.squares[:, shape], 1e-9)) - 0.5 * df * np.log(left)
        weight = np.exp(evidence - evidence.max())
        return float(weight @ fdtrc(1, df, explained / (left / df)) / weight.sum()) * self.shapes.columns.shape[1]
