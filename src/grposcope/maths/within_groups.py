"""What goes with the reward inside groups: every column at once, by exact permutation, family-wise.

Under the null, the rewards of a group are exchangeable among its members. For a column x and centred rewards
r_i − r̄_g, the score Σ x_i (r_i − r̄_g) then has mean 0 and variance Σ_g SSx_g·SSr_g/(n_g − 1) over all permutations of
rewards within groups, exactly, with SS the sums of squares about the mean of the group. z is the score over its
standard deviation, and the p-value of a column is the share of permutations in which the largest |z| of all columns is
as large (Westfall and Young 1993), so that the chance of any column below α is at most α, whatever they share.

Where no or few permutations reach a |z|, the p-value is the tail of a Gumbel distribution with the mean and deviation
of the largest |z| (Winkler et al. 2016), whose tail is heavier than that of normal maxima.

N: rows. F: columns. K: live groups, those with two different rewards or more. P: prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK = 256
"""Columns that are worked on at a time."""

TAIL = 0.02
"""Share of the permutations at or above a |z| up to which its p-value is the tail of a fitted distribution."""


@dataclass(frozen=True)
class WithinGroups:
    """Association of each column with the reward inside groups; all arrays (F,).

    z: see the module; 0 for columns that do not vary or do so in too few prompts. p: family-wise. slope: reward per
    unit of the column, inside groups. r2: share of the variance of rewards that goes with it, in groups where it
    varies. live: live groups; rows: rollouts in them. largest: the largest |z| of each permutation, sorted.
    """

    z: Floats
    p: Floats
    slope: Floats
    r2: Floats
    live: int
    rows: int
    largest: Floats


@dataclass(frozen=True)
class _LiveRows:
    """Rows of live groups in the order of their groups: places (n,), centred rewards, first place and size of each
    group (K,), sums of squares of rewards (K,), and of which prompt each group is (K,)."""

    places: Ints
    reward: Floats
    starts: Ints
    sizes: Ints
    squares: Floats
    prompt: Ints


@np.errstate(over="ignore", invalid="ignore")  # of rewards whose squares are beyond float
def association(
    columns: Singles,
    reward: Floats,
    group: Ints,
    prompt: Ints,
    draws: int,
    rng: np.random.Generator,
    least: float = 3.0,
) -> WithinGroups:
    """Association of the columns (N, F) with the reward (N,), rewards being permuted within groups `draws` times.

    Rows without a finite reward are left out. least: prompts that a column must vary in, by their effective number
    (Σ v)²/Σ v² of the variances v of the score by prompt, which do not see which reward is whose; half of all prompts
    where there are fewer than twice as many.
    """
    rows = live_rows(reward, group, prompt)
    count = columns.shape[1]
    if rows is None:
        nothing = np.zeros(count)
        return WithinGroups(nothing, np.ones(count), nothing, nothing, 0, 0, np.zeros(0))
    both = np.concatenate([rows.reward[:, None], _permuted(rows.reward, rows.sizes, draws, rng)], 1).astype(np.float32)
    z, slope, r2 = np.zeros(count), np.zeros(count), np.zeros(count)
    largest = np.zeros(draws)
    for block in _blocks(count):
        part = np.ascontiguousarray(columns[rows.places, block])
        own, variance, spread, squares = _variances(part, rows, least)
        scores = part.T @ both
        deviation = np.sqrt(np.where(own, variance, 1.0))
        ratios = np.abs(scores / deviation[:, None]) * own[:, None]
        z[block] = np.where(own, scores[:, 0] / deviation, 0.0)
        slope[block] = np.where(own, scores[:, 0] / np.maximum(spread, 1e-12), 0.0)
        r2[block] = np.where(own, scores[:, 0] ** 2 / np.maximum(spread * squares, 1e-12), 0.0)
        largest = np.maximum(largest, ratios[:, 1:].max(0, initial=0.0))
    largest.sort()
    return WithinGroups(z, tail(np.abs(z), largest), slope, r2, len(rows.sizes), len(rows.places), largest)


def live_rows(reward: Floats, group: Ints, prompt: Ints) -> _LiveRows | None:
    """The rows of groups whose rewards differ, in the order of their groups; None where there is none.

    Rewards whose squares no float holds are left out as those that are not finite.
    """
    finite = np.flatnonzero(np.abs(reward) < 1e150)
    order = finite[np.argsort(group[finite], kind="stable")]
    if not len(order):
        return None
    starts, sizes = _runs(group[order])
    centred = reward[order] - np.repeat(np.add.reduceat(reward[order], starts) / sizes, sizes)
    squares = np.add.reduceat(centred**2, starts)
    live = (squares > 1e-12) & (sizes > 1)
    if not live.any():
        return None
    members = order[np.repeat(live, sizes)]
    first = np.cumsum(sizes[live]) - sizes[live]
    names = np.unique(prompt[members[first]], return_inverse=True)[1]
    return _LiveRows(members, centred[np.repeat(live, sizes)], first, sizes[live], squares[live], names)


def _runs(sorted_ids: Ints) -> tuple[Ints, Ints]:
    """First place and length of each run of equal ids."""
    starts = np.flatnonzero(np.concatenate([[True], sorted_ids[1:] != sorted_ids[:-1]]))
    return starts, np.diff(np.append(starts, len(sorted_ids)))


def _blocks(count: int) -> Iterator[slice]:
    return (slice(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK))


def _variances(singles: Singles, rows: _LiveRows, least: float) -> tuple[NDArray[np.bool_], Floats, Floats, Floats]:
    """Of columns (n, f): which vary in enough prompts, the variance of their scores, Σ_g SSx_g, and Σ_g SSr_g of the
    groups where they vary."""
    adder = summing(rows.starts, len(singles))
    centred = singles - singles.mean(0, dtype=np.float64).astype(np.float32)
    sums, squares = (adder @ centred).astype(np.float64), (adder @ (centred * centred)).astype(np.float64)
    inside = squares - sums**2 / rows.sizes[:, None]
    inside = np.where(inside > 1e-5 * np.maximum(squares, 1e-12), inside, 0.0)  # what is left of single precision
    variance = inside * (rows.squares / np.maximum(rows.sizes - 1, 1))[:, None]
    prompts = int(rows.prompt.max()) + 1
    owner = sparse.csr_matrix((np.ones(len(rows.prompt)), (rows.prompt, np.arange(len(rows.prompt)))))
    by_prompt = np.asarray(owner @ variance)
    total = variance.sum(0)
    enough = total**2 >= min(least, prompts / 2) * (by_prompt**2).sum(0)
    return enough & (total > 1e-9), total, inside.sum(0), rows.squares @ (inside > 0)


def summing(starts: Ints, count: int) -> sparse.csr_matrix:
    """The matrix (K, count) of ones that sums consecutive rows, those of each sum beginning at `starts` (K,)."""
    ones = np.ones(count, np.float32)
    return sparse.csr_matrix((ones, np.arange(count), np.append(starts, count)), (len(starts), count))


def _permuted(values: Floats, sizes: Ints, draws: int, rng: np.random.Generator) -> Singles:
    """Values (n,) permuted within consecutive groups of the given sizes, (n, draws)."""
    made = np.empty((draws, len(values)), np.float32)
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes):
        places = starts[sizes == size][:, None] + np.arange(size)
        drawn = np.broadcast_to(values[places].astype(np.float32), (draws, *places.shape))
        made[:, places] = rng.permuted(drawn, axis=2)
    return made.T


def tail(z: Floats, largest: Floats) -> Floats:
    """The family-wise p-values of |z|, from the sorted largest |z| of the permutations."""
    draws = len(largest)
    if not draws:
        return np.ones(len(z))
    above = draws - np.searchsorted(largest, z * (1 - 1e-5))
    counted = (1 + above) / (1 + draws)
    deviation = float(largest.std())
    if deviation <= 0:
        return np.asarray(counted)
    scale = deviation * np.sqrt(6) / np.pi
    beyond = np.clip((z - largest.mean() + np.euler_gamma * scale) / scale, -50.0, 700.0)
    fitted = -np.expm1(-np.exp(-beyond))
    return np.where(above <= TAIL * draws, np.minimum(counted, np.maximum(fitted, 1e-300)), counted)


def clustered(column: Floats, reward: Floats, group: Ints, prompt: Ints) -> tuple[float, float, float]:
    """The slope of the reward on one column inside groups, its standard error with prompts as clusters, and the z of
    the score with prompts as clusters: a habit pays in many prompts, not much in one. NaN where nothing varies."""
    rows = live_rows(reward, group, prompt)
    if rows is None:
        return np.nan, np.nan, np.nan
    x = np.asarray(column, np.float64)[rows.places]
    x = x - np.repeat(np.add.reduceat(x, rows.starts) / rows.sizes, rows.sizes)
    spread = float(x @ x)
    if spread <= 1e-12:
        return np.nan, np.nan, np.nan
    owner = np.repeat(rows.prompt, rows.sizes)
    slope = float(x @ rows.reward) / spread
    residual = np.bincount(owner, x * (rows.reward - slope * x))
    score = np.bincount(owner, x * rows.reward)
    clusters = int((np.bincount(owner, x**2) > 1e-12).sum())
    widened = np.sqrt(clusters / max(clusters - 1, 1))
    error = float(np.sqrt((residual**2).sum())) / spread * widened
    return slope, error, float(score.sum() / max(np.sqrt((score**2).sum()), 1e-12))


def divided(group: Ints, values: Floats) -> Ints:
    """Groups split by the value of a column, so that others are tested among rollouts alike in it; in fifths where it
    has more than four values."""
    levels = np.asarray(values, np.float64)
    if len(np.unique(levels)) > 4:
        levels = np.searchsorted(np.quantile(levels, [0.2, 0.4, 0.6, 0.8]), levels).astype(np.float64)
    return np.unique(np.stack([group.astype(np.float64), levels]), axis=1, return_inverse=True)[1].reshape(-1)
