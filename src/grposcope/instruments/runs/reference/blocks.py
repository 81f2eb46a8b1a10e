"""Summaries of a run: the mean of each metric over a few equal parts of the clock that all runs share.

The mean of a block is taken to a scale on which seeds of one setting scatter alike: the logarithm of what is positive,
2·arcsin √p halved of shares, anything else as it is. Its noise within the run is the standard deviation of the rows
around a straight line through the block, over the root of their number: the unit in which blocks of unlike metrics
are compared, not a standard error of the mean, which rows that hang together would make too small.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.metrics import VARIANTS
from grposcope.core.run import Floats

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
class Scale:
    """A monotone scale: `of` a value, `back` to it, and the `slope` of `of` there."""

    of: Callable[[Floats], Floats]
    back: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]


PLAIN = Scale(lambda x: x, lambda y: y, np.ones_like)
LOG = Scale(np.log, np.exp, lambda x: 1 / x)
SHARE = Scale(
    lambda x: np.arcsin(np.sqrt(np.clip(x, 0, 1))),
    lambda y: np.sin(np.clip(y, 0, math.pi / 2)) ** 2,
    lambda x: 0.5 / np.sqrt(np.clip(x * (1 - x), 1e-4, None)),
)


@dataclass(frozen=True)
class Blocks:
    """One metric of R runs in B blocks: mean (R, B) and noise (R, B), on the metric's own scale."""

    mean: Floats
    noise: Floats

    def scale(self, metric: str) -> Scale:
        """The scale on which runs of one setting scatter alike."""
        if metric in SHARES and bool(((self.mean >= 0) & (self.mean <= 1)).all()):
            return SHARE
        return LOG if metric in POSITIVE and bool((self.mean > 0).all()) else PLAIN


def shared(clocks: Sequence[Floats]) -> tuple[float, float]:
    """First and last moment that all clocks have; first > last where they have none in common."""
    return max(float(clock[0]) for clock in clocks), min(float(clock[-1]) for clock in clocks)


def edges(first: float, last: float, count: int, whole: bool) -> Floats:
    """Bounds (count + 1,) of equal blocks from `first` to `last`, both inside. whole: the clock counts whole steps."""
    return np.linspace(first, last + 1 if whole else np.nextafter(last, math.inf), count + 1)


def rows(clock: Floats, bounds: Floats) -> list[slice]:
    """The rows of each block, given the clock (N,) and the bounds (B + 1,)."""
    places = np.searchsorted(clock, bounds, side="left")
    return [slice(int(low), int(high)) for low, high in itertools.pairwise(places)]


def summary(column: Floats, parts: Sequence[slice]) -> tuple[Floats, Floats]:
    """Mean and noise (B,) of a column in each block; NaN where it has fewer than LEAST values or half of its rows."""
    summaries = np.full((2, len(parts)), math.nan)
    for number, block in enumerate(parts):
        values = column[block]
        there = np.flatnonzero(np.isfinite(values))
        if len(there) >= LEAST and 2 * len(there) >= len(values):
            summaries[:, number] = values[there].mean(), _noise(there.astype(np.float64), values[there])
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


def chosen(tables: Sequence[Mapping[str, Floats]]) -> list[str]:
    """The metrics that all tables have, one for each of QUANTITIES."""
    firsts = (next((name for name in names if all(name in table for table in tables)), None) for names in QUANTITIES)
    return [name for name in firsts if name is not None]


def slope(tables: Sequence[Mapping[str, Floats]], sign: str, other: str) -> float:
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
