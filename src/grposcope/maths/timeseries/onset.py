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

How likely each shape is as a change of a series beside other changes (`onset`), under each noise and under all.

Movements of curves: how far they rise at most, from which row to which, and where a tenth of it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from grposcope.maths.timeseries.change_shapes import COURSES, SEEN, Noises, Shapes, finer, inners, shapes_beside
from grposcope.maths.timeseries.noise import Array, robust_spread
from grposcope.maths.timeseries.running_median import running_median

LEAST = 5
"""Rows below which nothing is dated."""

BLOCKS = 128
"""Longer series are averaged down to at most this many blocks."""

EVIDENT = 0.001
"""p-value, times the number of rows, below which a change is dated."""

BESIDE = 0.02
"""p-value, times the number of rows, below which a curve has another change beside the one that is dated."""

ASKED = 64
"""Answers that are kept, as several faults ask about one metric."""

CHANGES = 3
"""Changes that a curve may have."""

OTHERS = 5
"""Likeliest shapes of the other changes that are averaged over."""

NEGLIGIBLE = 1e-4
"""Likelihood of a shape over that of the likeliest below which it is left out."""

UNLIKELY = 0.03
"""Likelihood of a noise over that of the likeliest below which it is left out in the end."""

AS_LIKELY = 0.01
"""Likelihood of the likeliest shape in the direction asked for over that of any, from which a curve that leaves its
course is taken to leave it in that direction: a rise late and a fall early look alike beside a course that may grow."""

CLEAR, UNLIKE = 6.0, 4.0
"""Spreads between two levels from which a change may have taken a single row, where one spread is UNLIKE the other by
this factor; twice as many where it is not, so that the posterior of one noise is right for both."""

AROUND = 5
"""Rows on either side that have to be at their own level."""

NEAR, SPREADS = 0.03, 3.0
"""How near: this share of the way, and so many spreads of that level."""

NEIGHBOURS, ODD = 7, 3.5
"""Rows of the running median, and robust standard deviations from it beyond which a row counts as this far."""


@dataclass(frozen=True)
class Onset:
    """Row of an onset, median and 95 % interval of its posterior."""

    row: int
    low: int
    high: int


def onset(
    y: Array, direction: int = 0, course: bool = False, shown: bool = False, beside: Array | None = None
) -> Onset | None:
    """Since when finite y (n,) has changed; None where no change is evident.

    direction: 1 for a rise, -1 for a fall, 0 for either. course: whether it has a course of its own, which it leaves.
    shown: whether another test has shown the change, so that the likeliest is dated where none is evident by itself.
    beside (n,): what y goes with, at a rate of its own, until it changes.
    """
    y = np.asarray(y, np.float64)
    if len(y) < LEAST or np.ptp(y) == 0:
        return None
    if beside is None and (row := at_once(y, direction)) is not None:
        return Onset(row, row - 1, row)
    rows = _blocks(len(y))
    averaged, other = _standard(_without_odd(y), rows), None if beside is None else _standard(beside, rows)
    dated = _dated(averaged.tobytes(), direction, course, shown, None if other is None else other.tobytes())
    if dated is None:
        return None
    low, middle, high = dated
    wider = (int(rows[-1] - rows[-2]) + 1) // 2
    first, last = max(int(rows[low]) - wider, 1), min(int(rows[high + 1]) - 1 + wider, len(y) - 1)
    return Onset(int(rows[middle] + rows[middle + 1] - 1) // 2, first, last)


def at_once(y: Array, direction: int = 0, clear: float | None = None) -> int | None:
    """The row from which finite y (n,) is at another level, CLEAR spreads from the one before; None where it is not so.

    No row is on the other level's side, and the AROUND rows on either side are at their own levels, so that the change
    took a single row. The noise of both levels need not be alike: a reward that is lost is exactly 0 from then on, and
    the posterior of `onset`, which has one noise for all rows, would date it where the rows before happen to dip.
    clear: as many spreads as `CLEAR` is, where the row is only looked for and some other test has shown the change.
    """
    n = len(y)
    if n < 2 * AROUND:
        return None
    counts = np.arange(AROUND, n - AROUND + 1)
    sums = np.cumsum(y)[counts - 1]
    between = (sums / counts - (y.sum() - sums) / (n - counts)) ** 2 * counts * (n - counts)
    row = int(counts[np.argmax(between)])
    before, after = y[:row], y[row:]
    first, last = float(np.median(before)), float(np.median(after))
    jump, sign = abs(last - first), 1 if last > first else -1
    spreads = float(before.std()), float(after.std())
    if clear is None:
        clear = CLEAR if max(spreads) > UNLIKE * min(spreads) else 2 * CLEAR
    if not jump > clear * max(spreads) or (direction and direction != sign):
        return None
    near, near_after = (NEAR + SPREADS * spread / jump for spread in spreads)
    share = sign * (y - first) / jump  # 0 at the level before, 1 at the level after
    apart = share[:row].max() < 0.5 < share[row:].min()
    own = np.abs(share[row - AROUND : row]).max() < near and np.abs(share[row : row + AROUND] - 1).max() < near_after
    return row if apart and own else None


@lru_cache(maxsize=ASKED)
def _dated(y: bytes, direction: int, course: bool, shown: bool, beside: bytes | None) -> tuple[int, int, int] | None:
    """The 2.5 % quantile, median and 97.5 % quantile of the onset of the float64 values y, for `onset`'s arguments."""
    values = np.frombuffer(y)
    tried = _shapes_of(len(values), course) if beside is None else shapes_beside(np.frombuffer(beside)[:, None], 2)
    series = _Series(*tried, values, direction if beside is not None else 0)
    if course:
        series = series.towards(direction)
    for level in (EVIDENT, 1.0) if shown else (EVIDENT,):
        changes = series.changes(max(level, BESIDE))
        asked = series.asked(changes, direction)
        if asked is not None and series.tests(changes)[asked[0]] < level:
            return series.likely(changes).quantiles(changes, *asked)
    return None


@lru_cache(maxsize=4)
def _shapes_of(n: int, course: bool) -> tuple[Noises, Shapes]:
    """The shapes of a change of n rows beside a level, or beside a course that grows."""
    return shapes_beside(_courses(n).T, max(round(SEEN * n), 4)) if course else shapes_beside(np.empty((n, 0)), 1)


def _courses(n: int) -> Array:
    """Curves (K, n) whose sums are near the logarithms of what grows at its own rate, ever slower, or levels off."""
    u = (np.arange(n) + 0.5) / n
    grown = [np.log(start + u**power) for start in (0.02, 0.05, 0.1, 0.3, 1.0) for power in (0.5, 1.0)]
    levelling = [np.log(start + 1 - np.exp(-u / time)) for start in (0.05, 0.2, 1.0) for time in (0.1, 0.2, 0.4)]
    family = np.array([*grown, *levelling, 3 * u])
    family = (family - family.mean(1, keepdims=True)) / family.std(1, keepdims=True)
    return np.linalg.svd(family, full_matrices=False)[2][:COURSES]


def _blocks(n: int) -> NDArray[np.int64]:
    """First rows of the blocks, and n behind them."""
    size = -(-n // BLOCKS)
    return np.unique(np.append(np.arange(n, 0, -size), 0))


def _standard(y: Array, rows: NDArray[np.int64]) -> Array:
    """Means of the blocks of y (n,), centred and of unit variance; zeros of what is constant."""
    averaged = np.add.reduceat(y, rows[:-1]) / np.diff(rows)
    averaged[:-1] = _without_odd(averaged)[:-1]  # the last block may be all that there is of a jump
    return np.asarray((averaged - averaged.mean()) / max(float(averaged.std()), 1e-300))


def _without_odd(y: Array) -> Array:
    """y (n,) with rows far from their neighbours brought nearer."""
    middle = running_median(y, NEIGHBOURS)
    spread = robust_spread(y - middle)
    return middle + np.clip(y - middle, -ODD * spread, ODD * spread) if spread > 0 else y


@dataclass
class _Series:
    """A series y (n,) and what has been found about it. gains (M, C): of every shape; shared: shape -> its inner
    products (M, C) with all others. sign: of all changes, 0 for either."""

    noises: Noises
    shapes: Shapes
    y: Array
    sign: int = 0
    white: Array = field(init=False)
    gains: Array = field(init=False)
    total: Array = field(init=False)
    shared: dict[int, Array] = field(default_factory=dict)
    scans: dict[tuple[int, ...], _ChangeScan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.white = self.noises.whitened(self.y[None])[:, 0]
        self.gains = _inner(self.shapes, self.white)
        self.total = (self.white**2).sum(1)

    def products(self, others: Sequence[int]) -> Array:
        """Inner products (k, M, C) of these shapes with all shapes."""
        new = [shape for shape in others if shape not in self.shared]
        if new:
            self.shared |= dict(zip(new, inners(self.shapes, self.shapes.white[:, new]), strict=True))
        return np.array([self.shared[shape] for shape in others])

    def beside(self, others: Sequence[int]) -> _ChangeScan:
        """All shapes as a change beside these others, in the order of their numbers."""
        others = tuple(sorted(others))
        if others not in self.scans:
            self.scans[others] = self.scan(others)
        return self.scans[others]

    def scan(self, others: tuple[int, ...], tried: tuple[Shapes, Array, Array] | None = None) -> _ChangeScan:
        """All shapes as a change beside these others; or those that are tried, with their gains, and their products
        with the others."""
        shapes, own, near = tried or (self.shapes, self.gains, self.products(others))
        k, noises = len(others), self.noises
        if not k:
            none = np.empty((0, *own.shape))
            return _ChangeScan(
                shapes, own, shapes.squares, self.total, noises.base, noises.df, self.sign, none[:, :, 0].T, none
            )
        gram = self.products(others)[:, :, list(others)].transpose(1, 0, 2) + 1e-6 * np.eye(k)
        inverse, of_others = np.linalg.inv(gram), self.gains[:, list(others)]
        taken = np.einsum("mij,jmc->imc", inverse, near)
        gains = own - np.einsum("imc,mi->mc", taken, of_others)
        squares = np.maximum(shapes.squares - (taken * near).sum(0), 1e-9)
        alone = np.einsum("mij,mj->mi", inverse, of_others)
        total = self.total - (alone * of_others).sum(1)
        base = noises.base - 0.5 * np.linalg.slogdet(gram)[1]
        return _ChangeScan(shapes, gains, squares, total, base, noises.df - k, self.sign, alone, taken)

    def towards(self, direction: int) -> _Series:
        """The series with changes in this direction alone, where its first is then about as likely as any."""
        series = _Series(self.noises, self.shapes, self.y, direction)
        likely = float(series.beside(()).marginal.max())
        return series if likely > float(self.beside(()).marginal.max()) + np.log(AS_LIKELY) else self

    def changes(self, level: float) -> tuple[int, ...]:
        """The shapes of the changes with a p-value below this level, each beside the others."""
        chosen: tuple[int, ...] = ()
        for _ in range(min(CHANGES, max(self.noises.df // 3, 1))):
            chosen = self.settled((*chosen, self.beside(chosen).best))
            if len(chosen) > 1 and all(p >= level for p in self.tests(chosen)):
                break
        while chosen:
            tests = self.tests(chosen)
            weakest = int(np.argmax(tests))
            if tests[weakest] < level:
                break
            chosen = self.settled(_except(chosen, weakest))
        return chosen

    def likely(self, chosen: tuple[int, ...]) -> _Series:
        """The series under the noises alone that are likely beside these changes."""
        evidence = self.beside(chosen[1:]).evidence[:, chosen[0]]
        keep = np.flatnonzero(evidence > evidence.max() + np.log(UNLIKELY))
        noises = Noises(self.noises.roots[keep], self.noises.bases[keep], self.noises.base[keep])
        shapes = Shapes(self.shapes.columns, self.shapes.prior, self.shapes.white[keep], self.shapes.squares[keep])
        return _Series(noises, shapes, self.y, self.sign)

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

    def asked(self, chosen: tuple[int, ...], direction: int) -> tuple[int, int] | None:
        """Which of the changes does most of the largest movement in a direction, and the sign of that movement."""
        if not chosen:
            return None
        noise = int(np.argmax(self.beside(chosen[1:]).evidence[:, chosen[0]]))
        x = self.shapes.white[noise, list(chosen)]
        sizes = np.linalg.lstsq(x.T, self.white[noise], rcond=None)[0]
        columns = self.shapes.columns[list(chosen)]
        signs = (direction,) if direction else (1, -1)
        moves = [_movements(sign * (sizes @ columns)[None]) for sign in signs]
        best = int(np.argmax([size[0] for size, *_ in moves]))
        (size, begin, end, _), sign = moves[best], signs[best]
        done = sign * sizes * (columns[:, end[0]] - columns[:, begin[0]])
        return (int(np.argmax(done)), sign) if size[0] > 0 and done.max() > 0 else None

    def quantiles(self, chosen: tuple[int, ...], target: int, sign: int) -> tuple[int, int, int]:
        """The 2.5 % quantile, median and 97.5 % quantile of the onset, over all shapes of a change and the likeliest of
        the others beside it."""
        others = _except(chosen, target)
        sets = {tuple(sorted(others))}
        for k in range(len(others)):
            rest = _except(others, k)
            likely = self.beside((*rest, chosen[target])).marginal
            sets |= {tuple(sorted((*rest, int(shape)))) for shape in np.argsort(-likely)[:OTHERS]}
        scans = self._scans(sorted(sets), finer(self.noises, self.shapes.columns[chosen[target]]))
        marginals = [scan.marginal for _, scan in scans]
        most = max(float(marginal.max()) for marginal in marginals)
        total = np.zeros(len(self.y))
        for (one, scan), marginal in zip(scans, marginals, strict=True):
            keep = np.flatnonzero(marginal > most + np.log(NEGLIGIBLE))
            if len(keep):
                size, _, _, onset = _movements(sign * self._curves(one, scan, keep))
                weight = np.where(size > 0, np.exp(marginal[keep] - most), 0.0)
                total += np.bincount(onset, weight, minlength=len(total))
        total = np.cumsum(total)
        low, middle, high = (int(np.searchsorted(total, share * total[-1])) for share in (0.025, 0.5, 0.975))
        return low, middle, high

    def _scans(self, sets: Sequence[tuple[int, ...]], refined: Shapes) -> list[tuple[tuple[int, ...], _ChangeScan]]:
        """All shapes and the refined ones as a change, beside each of the sets of others."""
        others = sorted({shape for one in sets for shape in one})
        self.products(others)
        own, near = _inner(refined, self.white), inners(refined, self.shapes.white[:, others])
        scans: list[tuple[tuple[int, ...], _ChangeScan]] = []
        for one in sets:
            scans.append((one, self.beside(one)))
            scans.append((one, self.scan(one, (refined, own, near[[others.index(shape) for shape in one]]))))
        return scans

    def _curves(self, others: Sequence[int], scan: _ChangeScan, keep: NDArray[np.int64]) -> Array:
        """The fitted curves (C, n) of some shapes, each beside the others, without the course."""
        noise = np.argmax(scan.evidence[:, keep], axis=0)
        sizes = scan.gains[noise, keep] / scan.squares[noise, keep]
        curves = sizes[:, None] * scan.shapes.columns[keep]
        if not others:
            return np.asarray(curves)
        beside = scan.alone[noise] - sizes[:, None] * scan.taken[:, noise, keep].T
        return np.asarray(curves + beside @ self.shapes.columns[list(others)])


def _inner(shapes: Shapes, white: NDArray[np.floating]) -> Array:
    """Inner products (M, C) of shapes with one whitened row (M, n) under each noise."""
    return np.asarray(inners(shapes, white[:, None])[0])


def _except(chosen: tuple[int, ...], k: int) -> tuple[int, ...]:
    return chosen[:k] + chosen[k + 1 :]


ALIKE = 0.02
"""Share of its squared length that a shape has beyond the other changes, at least."""


@dataclass(frozen=True)
class _ChangeScan:
    """Each shape as a change beside k others: gains and squares (M, C), the squares left without it (M,).

    alone (M, k): sizes of the others without it; taken (k, M, C): what each loses of its size where the shape has one.
    """

    shapes: Shapes
    gains: Array
    squares: Array
    total: Array
    base: Array
    df: int
    sign: int
    alone: Array
    taken: Array

    def explained(self, shape: slice | int = slice(None)) -> Array:
        """Squares that shapes explain beyond the others."""
        total = self.total if isinstance(shape, int) else self.total[:, None]
        return np.asarray(np.minimum(self.gains[:, shape] ** 2 / self.squares[:, shape], (1 - 1e-6) * total))

    @cached_property
    def evidence(self) -> Array:
        """Log-likelihood (M, C) of each shape under each noise, with its prior; none of those like the others."""
        left = np.maximum(self.total[:, None] - self.explained(), 1e-9).astype(np.float32)
        squares = np.log(self.squares.astype(np.float32))
        likely = self.base[:, None] + self.shapes.prior - 0.5 * squares - 0.5 * (self.df - 1) * np.log(left)
        allowed = (self.squares > ALIKE * self.shapes.squares) & (self.sign * self.gains >= 0)
        return np.where(allowed, likely, -1e6)

    @cached_property
    def marginal(self) -> Array:
        """The same (C,), all noises taken together."""
        evidence = self.evidence
        most = evidence.max()
        return np.asarray(np.log(np.exp((evidence - most).astype(np.float32)).sum(0, dtype=np.float64) + 1e-300) + most)

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


TENTH = 0.1
"""Share of its way that a change has made at its onset."""


def _movements(ways: Array) -> tuple[Array, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The largest rise of each curve (C, n), which is at 0 before its first row.

    The sizes (C,), the last row before and the row at the top, and the onsets.
    """
    ways = np.column_stack([np.zeros(len(ways)), ways])
    lowest = np.minimum.accumulate(ways, axis=1)
    end = np.argmax(ways - lowest, axis=1)
    each, rows = np.arange(len(ways)), np.arange(ways.shape[1])
    low = lowest[each, end]
    size = ways[each, end] - low
    slack = 1e-9 * np.maximum(np.ptp(ways, axis=1), 1e-300)
    before = (ways <= (low + slack)[:, None]) & (rows <= end[:, None])
    begin = ways.shape[1] - 1 - np.argmax(before[:, ::-1], axis=1)
    begun = (ways >= (low + TENTH * size)[:, None] - slack[:, None]) & (rows > begin[:, None])
    onset = np.maximum(np.argmax(begun, axis=1) - 1, 0)
    return size, np.maximum(begin - 1, 0), np.maximum(end - 1, 0), onset
