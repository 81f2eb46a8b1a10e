"""What changes over the steps of a run, with whole groups as the units: every column at once, by permutation.

Rollouts of a group share their prompt, so a step of few groups differs from others by its prompts alone; permuting
groups over steps keeps that, permuting rollouts does not. Two statistics of the standardised group means of a column:
the split of the steps in two with the largest |z| (CUSUM), and the single step with the largest |z|. The p-value of
each is family-wise over columns and places, by the largest of each permutation, as in `within_groups`.

N: rollouts. K: groups. S: steps. F: columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from grposcope.maths.within_groups import Floats, Ints, Singles, summing, tail

EDGE = 0.05
"""Share of the steps at either end in which no split is looked for."""

VALUES = 40_000_000
"""Entries of the matrix of group means beyond which fewer permutations are made."""


@dataclass(frozen=True)
class StepChanges:
    """Changes of the columns over the steps; arrays (F,) where nothing else is said.

    z: of the best split, above 0 where the column rises. p: family-wise. at: the last step before it. before, after:
    mean of the groups. odd_z, odd_p, odd_step: the same of the single step that is least like the others. steps (S,);
    means (S, F): of the groups of a step. largest: the largest |z| of a split in each permutation, sorted.
    """

    z: Floats
    p: Floats
    at: Ints
    before: Floats
    after: Floats
    odd_z: Floats
    odd_p: Floats
    odd_step: Ints
    steps: Ints
    means: Singles
    largest: Floats


@dataclass(frozen=True)
class _Scan:
    """Sums of consecutive runs of groups as statistics: `adder` (S, K) sums the groups of each step. Weights of splits
    (S − 1,), of which those `inner` count, and of single steps (S,)."""

    adder: sparse.csr_matrix
    splits: Singles
    inner: slice
    singles: Singles

    def sums(self, means: Singles, order: Ints | None = None) -> Singles:
        """The sum of each step (S, F) of group means that lie step by step, or in this order."""
        adder = self.adder
        if order is not None:
            adder = sparse.csr_matrix((adder.data, order, adder.indptr), adder.shape)
        return np.asarray(adder @ means)

    def of_splits(self, sums: Singles) -> Singles:
        """z of the earlier against the later steps, for every inner split."""
        return np.asarray(np.cumsum(sums, axis=0)[:-1][self.inner] * self.splits[self.inner, None])

    def of_steps(self, sums: Singles) -> Singles:
        """z of each step against all others."""
        return np.asarray(sums * self.singles[:, None])


def changes(columns: Singles, step: Ints, group: Ints, draws: int, rng: np.random.Generator) -> StepChanges | None:
    """What changes of the columns (N, F); None for fewer than four steps or eight groups.

    step, group (N,): groups are numbered from 0, and each lies in one step.
    """
    raw, of_group = _group_means(columns, step, group)
    order = np.argsort(of_group, kind="stable")
    steps, starts, per = np.unique(of_group[order], return_index=True, return_counts=True)
    if len(steps) < 4 or len(order) < 8:
        return None
    raw = raw[order]
    deviation = raw.std(0, dtype=np.float64)
    varies = deviation > 1e-7 * np.maximum(np.abs(raw).max(0), 1e-12)
    scaled = ((raw - raw.mean(0)) / np.where(varies, deviation, 1.0) * varies).astype(np.float32)
    scan = _scan(starts, per)
    sums = scan.sums(scaled)
    splits, singles = scan.of_splits(sums), scan.of_steps(sums)
    draws = max(39, min(draws, VALUES // max(scaled.size // 10, 1)))
    largest = np.zeros((2, draws))
    for draw in range(draws):
        drawn = scan.sums(scaled, rng.permutation(len(scaled)))
        largest[:, draw] = np.abs(scan.of_splits(drawn)).max(), np.abs(scan.of_steps(drawn)).max()
    largest.sort(axis=1)
    return _found(raw, steps, per, scan, splits, singles, largest)


def _group_means(columns: Singles, step: Ints, group: Ints) -> tuple[Singles, Ints]:
    """Means of the groups (K, F), and the step of each (K,)."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    adder = summing(starts, len(order))
    means = np.empty((len(starts), columns.shape[1]), np.float32)
    for first in range(0, columns.shape[1], 256):
        block = slice(first, first + 256)
        means[:, block] = (adder @ columns[order, block]) / sizes[:, None]
    return means, step[order[starts]]


def _scan(starts: Ints, per: Ints) -> _Scan:
    total = float(per.sum())
    counts = np.cumsum(per)[:-1].astype(np.float64)
    edge = max(1, int(EDGE * len(per)))
    inner = slice(edge - 1, len(per) - edge) if len(per) > 2 * edge else slice(0, len(per) - 1)
    splits = np.sqrt(total / (counts * (total - counts)))
    singles = 1 / np.sqrt(np.maximum(per * (1 - per / total), 1e-9))
    return _Scan(summing(starts, int(per.sum())), splits.astype(np.float32), inner, singles.astype(np.float32))


def _found(
    raw: Singles, steps: Ints, per: Ints, scan: _Scan, splits: Singles, singles: Singles, largest: NDArray[np.float64]
) -> StepChanges:
    best, odd = np.abs(splits).argmax(0), np.abs(singles).argmax(0)
    every = np.arange(raw.shape[1])
    split = scan.inner.start + best
    z, odd_z = -splits[best, every].astype(np.float64), singles[odd, every].astype(np.float64)
    sums = scan.sums(raw).astype(np.float64)
    running, counts = np.cumsum(sums, axis=0), np.cumsum(per)
    before = running[split, every] / counts[split]
    after = (running[-1] - running[split, every]) / (counts[-1] - counts[split])
    means = (sums / per[:, None]).astype(np.float32)
    return StepChanges(z, tail(np.abs(z), largest[0]), steps[split], before, after, odd_z,
                       tail(np.abs(odd_z), largest[1]), steps[odd], steps, means, largest[0])  # fmt: skip
