"""Whether a run goes like runs that went well: each metric in blocks of a shared clock, and where it left first.

With fewer than ENOUGH references nothing is judged. A metric that stops being logged, or stops being a number, where
all references go on has left for certain, at a step that is known exactly.

Summaries of a run: the mean of each metric over a few equal parts of the clock that all runs share.

The mean of a block is taken to a scale on which seeds of one setting scatter alike: the logarithm of what is positive,
2·arcsin √p halved of shares, anything else as it is. Its noise within the run is the standard deviation of the rows
around a straight line through the block, over the root of their number: the unit in which blocks of unlike metrics
are compared, not a standard error of the mean, which rows that hang together would make too small.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.metrics import VARIANTS
from grposcope.core.not_finite import not_finite
from grposcope.core.run import Floats, Run, labels
from grposcope.core.text import number
from grposcope.instruments.runs.reference import bands
from grposcope.instruments.runs.reference.clocks import UNITS, Clock
from grposcope.maths.holm import holm

ENOUGH = 4
"""References from which on a run is judged."""

BLOCKS = 4
"""Blocks in which a run is judged."""

FINEST, ROWS = 16, 5
"""Most blocks in which the divergence is dated, and the rows that each of them has at least."""

MOVING = 0.75
"""Share of the blocks of the references in which a metric has to move."""

QUIET = 2.0
"""|t| of a block below which nothing is seen in it."""

STOPPED = 5
"""Rows without a value after which a metric is said to have stopped."""

LEVEL = 0.05
"""Chance that a run which is like the references is said to have diverged."""


@dataclass(frozen=True)
class Block:
    """One metric in one block: the run's mean, that of the references, and the band that the run should keep to.

    low, high: first and last moment of the block on the clock. deviation: run less mean, with its standard error as
    that of a further run like the references. t: the deviation in its error, on the scale of the test.
    """

    low: float
    high: float
    run: float
    mean: float
    band: tuple[float, float]
    deviation: float
    error: float
    t: float


@dataclass(frozen=True)
class Left:
    """Where a metric left the references: the moment, the interval that holds it, and how.

    how: "level", "stopped" or "not finite"; of the last two the moment is known exactly. block: where it was seen.
    """

    metric: str
    at: float
    low: float
    high: float
    how: Literal["level", "stopped", "not finite"]
    block: Block | None = None


@dataclass(frozen=True)
class Judgement:
    """What is known of a run against its references.

    diverged: None where that cannot be told, with the reasons in `lacking`. p: chance of as large a distance in a run
    like the references. limit: |t| beyond which a block has left. left: every metric that left, the first one first.
    courses: metric -> its blocks. untested: metric -> why it took no part. absent: quantities that all references log
    and the run does not. apart: references unlike the others, each
    with its place among them, the metric that shows it and the adjusted p. range: first and last moment compared.
    """

    clock: Clock
    references: int
    level: float
    diverged: bool | None = None
    p: float = math.nan
    limit: float = math.nan
    range: tuple[float, float] = (math.nan, math.nan)
    left: tuple[Left, ...] = ()
    courses: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    untested: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    apart: tuple[tuple[int, str, float], ...] = ()
    lacking: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Cells:
    """Values of K metrics in B blocks in units of the noise within runs, (n + 1, K, B), the run last; K >= 0."""

    metrics: tuple[str, ...]
    values: Floats
    blocks: Mapping[str, _Blocks]
    scales: Mapping[str, _Scale]
    unit: Floats
    bounds: Floats

    @property
    def references(self) -> Floats:
        return self.values[:-1]

    def distances(self) -> Floats:
        return bands.distances(self.values[:-1], self.values[-1])


def judge(
    run: Run, references: Sequence[Run], clock: Clock = "step", level: float = LEVEL, explain: bool = True
) -> Judgement:
    """Hold a run against others of its kind that went well; UserError for one that is given twice, or has no clock.

    explain: also say which metrics left and when, and which reference is unlike the others.
    """
    everyone = [*references, run]
    _refuse_copies(run, references)
    clocks = [_clock(run, clock) for run in everyone]
    first, last = _shared_steps(clocks)
    judgement = Judgement(clock, len(references), level, range=(first, last), notes=_notes(everyone, clocks, clock))
    fewest = min(int(((c >= first) & (c <= last)).sum()) for c in clocks)
    if fewest < LEAST * BLOCKS:
        reason = f"at least {LEAST * BLOCKS} rows of each run over the same {UNITS[clock]}s; they share {fewest}"
        return _with(judgement, lacking=(reason,))
    stops = _stops(run, references, clocks, last)
    tables = [member.table for member in everyone]
    absent = tuple(_absent(tables))
    metrics = [name for name in _chosen_blocks(tables) if np.isfinite(run.table[name]).any()]
    everyone, metrics = _with_given(everyone, metrics)
    whole = clock == "step"
    cells, untested = _cells(everyone, clocks, metrics, _block_edges(first, last, BLOCKS, whole))
    judgement = _with(
        judgement, absent=absent, untested=untested | {s.metric: f"it {_HOW[s.how]}" for s in stops}, left=stops
    )
    if len(references) < 2 or not cells.metrics:
        certain = True if stops and len(references) >= ENOUGH else None
        return _with(judgement, diverged=certain, lacking=() if certain else _lacking(len(references), cells.metrics))
    t = cells.distances()
    by_chance = bands.largest_by_chance(cells.references)
    limit = float(np.quantile(by_chance, 1 - level))
    courses = {name: _course(cells, column, t, limit) for column, name in enumerate(cells.metrics)}
    judgement = _with(judgement, courses=courses, limit=limit)
    if lacking := _lacking(len(references), cells.metrics):
        return _with(judgement, lacking=lacking)
    p = bands.p_value(float(np.abs(t).max()), by_chance)
    if not explain:
        return _with(judgement, diverged=p <= level or bool(stops), p=p)
    departures: list[Left] = list(stops)
    if p <= level:
        finer = min(FINEST, fewest // ROWS)
        fine = (
            cells
            if finer <= BLOCKS
            else _cells(everyone, clocks, cells.metrics, _block_edges(first, last, finer, whole))[0]
        )
        departures += _earliest([*_dated(fine, level), *_dated(cells, level)])
    departures.sort(key=_order)
    return _with(judgement, diverged=bool(departures), p=p, left=tuple(departures), apart=_apart(cells, level))


_HOW = {"stopped": "stops being logged", "not finite": "is not a finite number from some row on"}


def _with(judgement: Judgement, **changes: object) -> Judgement:
    return replace(judgement, **changes)  # type: ignore[arg-type]


def _clock(run: Run, clock: Clock) -> Floats:
    course = _clock_of_run(run, clock)
    if course is None:
        raise UserError(f"{run.meta.source} does not log {UNITS[clock]}s in every row; compare by step")
    return course


_TOTAL = ("tokens_total",)
_EACH = ("tokens_generated", "tokens", "tokens_batch")
_MOMENT = ("time", "timestamp", "_timestamp", "wall_time", "_runtime")
_SECONDS = ("seconds_step",)


def _clock_of_run(run: Run, clock: Clock) -> Floats | None:
    """The clock of each row (N,), which never falls; None where the log has no such clock."""
    table = run.table
    if clock == "step":
        return np.asarray(table["step"], np.float64)
    total, each = (_TOTAL, _EACH) if clock == "tokens" else (_MOMENT, _SECONDS)
    if (column := _whole(table, total)) is not None and bool((np.diff(column) >= 0).all()):
        return column - column[0] if clock == "time" else column
    column = _whole(table, each)
    return None if column is None else np.cumsum(column)


def _whole(table: Mapping[str, Floats], names: tuple[str, ...]) -> Floats | None:
    """The first of these columns that has a value in every row; None where there is none."""
    return next((table[name] for name in names if name in table and np.isfinite(table[name]).all()), None)


def _refuse_copies(run: Run, references: Sequence[Run]) -> None:
    """UserError where the run is one of its references, or a reference is given twice, under whatever name."""
    for index, reference in enumerate(references):
        if _same(reference, run):
            raise UserError(
                f"{reference.meta.source} has the same rows as the run itself; give another run as its reference"
            )
        twin = next((other for other in references[:index] if _same(reference, other)), None)
        if twin is not None:
            raise UserError(
                f"{reference.meta.source} has the same rows as {twin.meta.source}; give each reference once"
            )


def _same(one: Run, other: Run) -> bool:
    """Whether two runs are one: the same rows in all metrics that both have, where any of these moves."""
    names = [name for names in QUANTITIES for name in names if name in one.table and name in other.table]
    if one.steps != other.steps or not names:
        return one.meta.source.resolve() == other.meta.source.resolve() and one.meta.name == other.meta.name
    moving = any(np.nanstd(one.table[name]) > 0 for name in names if np.isfinite(one.table[name]).any())
    return moving and all(np.array_equal(one.table[name], other.table[name], equal_nan=True) for name in names)


def _notes(everyone: Sequence[Run], clocks: Sequence[Floats], clock: Clock) -> tuple[str, ...]:
    """What the reader should know of the comparison: other trainers, and parts that not all runs have."""
    notes = []
    run, references = everyone[-1], everyone[:-1]
    others = sorted({reference.meta.engine for reference in references} - {run.meta.engine})
    if others:
        notes.append(f"the run is of {run.meta.engine}, references are of {', '.join(others)}: only metrics of the "
                     "same definition are compared")  # fmt: skip
    first, last = _shared_steps(clocks)
    beyond = sum(float(own[0]) < first or float(own[-1]) > last for own in clocks)
    if beyond and first <= last:
        unit = UNITS[clock]
        notes.append(f"the runs have different lengths: compared over {unit}s {first:,.0f} to {last:,.0f}, which all "
                     "of them have")  # fmt: skip
    return tuple(notes)


def _with_given(everyone: Sequence[Run], metrics: Sequence[str]) -> tuple[list[Run], list[str]]:
    """The runs with one metric at equal values of another as a further column, by the slope within the references."""
    preferred, other = GIVEN
    rate = (
        _slope([run.table for run in everyone[:-1]], preferred, other) if {preferred, other} <= {*metrics} else math.nan
    )
    if math.isnan(rate):
        return list(everyone), list(metrics)
    name = f"{preferred} given {other}"
    made = [replace(run, table={**run.table, name: run.table[preferred] - rate * run.table[other]}) for run in everyone]
    return made, [*metrics, name]


def _absent(tables: Sequence[Mapping[str, Floats]]) -> list[str]:
    """Quantities that all references log alike and of which the run has nothing."""
    *references, run = tables
    notes = []
    for names in QUANTITIES:
        there = [name for name in names if name in run and np.isfinite(run[name]).any()]
        name = next((name for name in names if all(_any(table, name) for table in references)), None)
        if name is not None and not there:
            notes.append(name)
    return notes


def _any(table: Mapping[str, Floats], name: str) -> bool:
    return name in table and bool(np.isfinite(table[name]).any())


def _stops(run: Run, references: Sequence[Run], clocks: Sequence[Floats], last: float) -> tuple[Left, ...]:
    """Metrics that end in the run, or are no finite numbers there, while they go on in all references."""
    own, lacking = clocks[-1], []
    wrong = not_finite(run.table)
    for name in _chosen_blocks([member.table for member in (*references, run)]):
        steady = all(
            bool(np.isfinite(reference.table[name][clock <= last]).all())
            for reference, clock in zip(references, clocks, strict=False)
        )
        rows_here = np.flatnonzero(own <= last)
        finite = np.isfinite(run.table[name][rows_here])
        if not steady or not finite.any() or finite.all():
            continue
        bad = rows_here[wrong[name][rows_here]] if name in wrong else rows_here[:0]
        after = rows_here[np.flatnonzero(finite)[-1] + 1 :]
        if len(bad):
            at = float(own[bad[0]])
            lacking.append(Left(name, at, at, at, "not finite"))
        elif len(after) >= STOPPED:
            at = float(own[after[0]])
            lacking.append(Left(name, at, at, at, "stopped"))
    return tuple(lacking)


def _cells(
    everyone: Sequence[Run], clocks: Sequence[Floats], metrics: Sequence[str], bounds: Floats
) -> tuple[_Cells, dict[str, str]]:
    """The values of all metrics in blocks that all runs have, and why others take no part."""
    parts = [_block_rows(clock, bounds) for clock in clocks]
    names = labels(everyone)
    kept, blocks, scales, values, units = [], {}, {}, [], []
    untested: dict[str, str] = {}
    for name in metrics:
        pairs = [_block_summary(member.table[name], block) for member, block in zip(everyone, parts, strict=True)]
        both = _Blocks(np.array([mean for mean, _ in pairs]), np.array([noise for _, noise in pairs]))
        lacking = [label for label, mean in zip(names, both.mean, strict=True) if not np.isfinite(mean).all()]
        if lacking:
            untested[name] = f"{', '.join(lacking)} lack{'s' * (len(lacking) == 1)} values of it"
            continue
        scale = both.scale(name)
        own = both.noise[:-1] * scale.slope(both.mean[:-1])
        unit = np.sqrt((own**2).mean(0))
        unit = np.maximum(unit, FLOOR * np.median(unit))
        scaled = scale.of(both.mean)
        if (both.noise[:-1] > 0).mean() < MOVING or not (np.ptp(scaled[:-1], axis=0) > 0).all():
            most, of_run = float(both.mean[:-1].max()), float(both.mean[-1].max())
            untested[name] = f"it hardly moves in the references; block means up to {number(most)}, " \
                             f"in the run up to {number(of_run)}"  # fmt: skip
            continue
        kept.append(name)
        blocks[name], scales[name] = both, scale
        values.append(scaled / unit)
        units.append(unit)
    shape = (len(everyone), 0, len(bounds) - 1)
    stacked = np.stack(values, axis=1) if values else np.empty(shape)
    unit_of = np.array(units) if units else np.empty(shape[1:])
    return _Cells(tuple(kept), stacked, blocks, scales, unit_of, bounds), untested


def _course(cells: _Cells, column: int, t: Floats, limit: float) -> tuple[Block, ...]:
    """The blocks of a metric, on its own scale."""
    name = cells.metrics[column]
    scale, mean = cells.scales[name], cells.blocks[name].mean
    unit, error = cells.unit[column], bands.errors(cells.references)[column]
    centre = cells.references[:, column].mean(0)
    low, high = (scale.back((centre + sign * limit * error) * unit) for sign in (-1, 1))
    middle = scale.back(centre * unit)
    own = error * unit / scale.slope(middle)
    departures = []
    for b in range(len(unit)):
        deviation = float(mean[-1, b] - middle[b])
        begin, end = float(cells.bounds[b]), float(cells.bounds[b + 1])
        departures.append(Block(begin, end, float(mean[-1, b]), float(middle[b]), (float(low[b]), float(high[b])),
                           deviation, float(own[b]), float(t[column, b])))  # fmt: skip
    return tuple(departures)


def _dated(cells: _Cells, level: float) -> list[Left]:
    """The first block of each metric that leaves by itself, at the level of all metrics and blocks together."""
    if not cells.metrics:
        return []
    t = cells.distances()
    limit = float(np.quantile(bands.largest_by_chance(cells.references), 1 - level))
    departures = []
    for column, name in enumerate(cells.metrics):
        beyond = np.flatnonzero(np.abs(t[column]) > limit)
        if not len(beyond):
            continue
        at = int(beyond[0])
        quiet = np.flatnonzero(np.abs(t[column, :at]) < QUIET)
        begin = int(quiet[-1]) + 1 if len(quiet) else 0
        block = _course(cells, column, t, limit)[at]
        departures.append(Left(name, block.low, float(cells.bounds[begin]), block.high, "level", block))
    return departures


def _order(departure: Left) -> tuple[float, bool, float]:
    """Order in which metrics are said to have left: by the latest moment, then what is certain, then the surest."""
    return departure.high, departure.how == "level", -abs(departure.block.t) if departure.block else 0.0


def _earliest(departures: Sequence[Left]) -> list[Left]:
    """Of each metric, the block that leaves earliest."""
    return list({departure.metric: departure for departure in sorted(departures, key=_order, reverse=True)}.values())


def _apart(cells: _Cells, level: float) -> tuple[tuple[int, str, float], ...]:
    """The reference that is least like the others, each held against the rest, where Holm's adjusted p is at most
    `level`; only one, since with it among them the rest are judged by a spread that is not theirs."""
    outliers = []
    for index in range(len(cells.references)):
        rest = np.delete(cells.references, index, axis=0)
        if not (rest.var(0, ddof=1) > 0).all():
            return ()
        t = np.abs(bands.distances(rest, cells.references[index]))
        p = bands.p_value(float(t.max()), bands.largest_by_chance(rest))
        outliers.append((p, -float(t.max()), index, cells.metrics[int(t.max(-1).argmax())]))
    _, _, index, metric = min(outliers)
    adjusted = holm([p for p, *_ in outliers])[index]
    return ((index, metric, adjusted),) if adjusted <= level else ()


def _lacking(count: int, metrics: Sequence[str]) -> tuple[str, ...]:
    """What is missing to judge a run: references, metrics."""
    lacking = []
    if count < ENOUGH:
        more = ENOUGH - count
        lacking.append(f"{more} more good run{'s' * (more > 1)} with the same settings and other seeds: {count} cannot "
                       "show how much seeds alone change a run")  # fmt: skip
    if not metrics:
        lacking.append("a metric that the run and all its references log throughout and that moves")
    return tuple(lacking)


LEAST = 3
"""Rows with a value in a block, at least."""

FLOOR = 0.3
"""Least noise of a block, as a share of the median over blocks."""

SHARES = ("dead_fraction", "dead_batches", "truncated", "at_limit", "clip_fraction", "clip_low", "clip_high",
          "clip_dual", "importance/masked", "importance/ess_raw")  # fmt: skip
POSITIVE = (
    *VARIANTS["reward_std"], *VARIANTS["entropy"], *VARIANTS["kl"], *VARIANTS["kl_old"], "length",
    "length_terminated", "grad_norm", "mismatch/k3", "mismatch/abs", "mismatch/k2", "importance/weight",
    "critic/loss",
)  # fmt: skip

QUANTITIES = (
    VARIANTS["reward"], VARIANTS["reward_std"], ("dead_fraction", "dead_batches"), VARIANTS["entropy"],
    VARIANTS["kl"], VARIANTS["kl_old"], ("length", "length_terminated"), VARIANTS["truncated"], ("grad_norm",),
    ("clip_low",), ("clip_high", "clip_fraction"), VARIANTS["mismatch"], ("importance/ess_raw",),
    VARIANTS["staleness"], ("critic/explained_variance",),
)  # fmt: skip
"""Quantities that are held against those of the good runs, each by its first variant that all runs log.

Left out are times, which the machine makes, what restates a setting (learning rate, counts of tokens and rollouts), and
the loss, whose level says nothing of a policy gradient.
"""


GIVEN = ("dead_fraction", "reward_std")
"""A metric that is also compared at equal values of another: with the same rewards, fewer rollouts to a group leave
more groups without any difference. Seeds move both together: this says more of the settings than either does."""


@dataclass(frozen=True)
class _Scale:
    """A monotone scale: `of` a value, `back` to it, and the `_slope` of `of` there."""

    of: Callable[[Floats], Floats]
    back: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]


PLAIN = _Scale(lambda x: x, lambda y: y, np.ones_like)
LOG = _Scale(np.log, np.exp, lambda x: 1 / x)
SHARE = _Scale(
    lambda x: np.arcsin(np.sqrt(np.clip(x, 0, 1))),
    lambda y: np.sin(np.clip(y, 0, math.pi / 2)) ** 2,
    lambda x: 0.5 / np.sqrt(np.clip(x * (1 - x), 1e-4, None)),
)


@dataclass(frozen=True)
class _Blocks:
    """One metric of R runs in B blocks: mean (R, B) and noise (R, B), on the metric's own scale."""

    mean: Floats
    noise: Floats

    def scale(self, metric: str) -> _Scale:
        """The scale on which runs of one setting scatter alike."""
        if metric in SHARES and bool(((self.mean >= 0) & (self.mean <= 1)).all()):
            return SHARE
        return LOG if metric in POSITIVE and bool((self.mean > 0).all()) else PLAIN


def _shared_steps(clocks: Sequence[Floats]) -> tuple[float, float]:
    """First and last moment that all clocks have; first > last where they have none in common."""
    return max(float(clock[0]) for clock in clocks), min(float(clock[-1]) for clock in clocks)


def _block_edges(first: float, last: float, count: int, whole: bool) -> Floats:
    """Bounds (count + 1,) of equal blocks from `first` to `last`, both inside. whole: the clock counts whole steps."""
    return np.linspace(first, last + 1 if whole else np.nextafter(last, math.inf), count + 1)


def _block_rows(clock: Floats, bounds: Floats) -> list[slice]:
    """The rows of each block, given the clock (N,) and the bounds (B + 1,)."""
    places = np.searchsorted(clock, bounds, side="left")
    return [slice(int(low), int(high)) for low, high in itertools.pairwise(places)]


def _block_summary(column: Floats, parts: Sequence[slice]) -> tuple[Floats, Floats]:
    """Mean and noise (B,) of a column in each block; NaN where it has fewer than LEAST values or half of its rows."""
    summaries = np.full((2, len(parts)), math.nan)
    for block, rows in enumerate(parts):
        values = column[rows]
        there = np.flatnonzero(np.isfinite(values))
        if len(there) >= LEAST and 2 * len(there) >= len(values):
            summaries[:, block] = values[there].mean(), _noise(there.astype(np.float64), values[there])
    return summaries[0], summaries[1]


def _noise(position: Floats, values: Floats) -> float:
    """Standard deviation around a straight line (ddof 2) over √N."""
    rest = _around_line(position, values)
    return math.sqrt(float(rest @ rest) / (len(rest) - 2) / len(rest))


def _around_line(position: Floats, values: Floats) -> Floats:
    """What a straight line over the places leaves of the values."""
    position, around = position - position.mean(), values - values.mean()
    rest: Floats = around - position * (position @ around) / (position @ position)
    return rest


def _chosen_blocks(tables: Sequence[Mapping[str, Floats]]) -> list[str]:
    """The metrics that all tables have, one for each of QUANTITIES."""
    firsts = (next((name for name in names if all(name in table for table in tables)), None) for names in QUANTITIES)
    return [name for name in firsts if name is not None]


def _slope(tables: Sequence[Mapping[str, Floats]], sign: str, other: str) -> float:
    """Least-squares slope of column `sign` on `other` within runs: straight lines over the rows of each are taken out.

    NaN where `other` does not move.
    """
    shared_moves = own_moves = 0.0
    for table in tables:
        there = np.flatnonzero(np.isfinite(table[sign]) & np.isfinite(table[other]))
        if len(there) > LEAST:
            x, y = (_around_line(there.astype(np.float64), table[name][there]) for name in (other, sign))
            shared_moves, own_moves = shared_moves + float(x @ y), own_moves + float(x @ x)
    return shared_moves / own_moves if own_moves > 0 else math.nan
