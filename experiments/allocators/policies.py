"""Batches of the draw of least error, and of two stages: pure functions of what is known of success rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocators import norms as assumed
from allocators import theory
from allocators.norms import Norms
from grposcope.lab.allocation.beta import Rates
from grposcope.lab.allocation.picks import Floats, Ints


@dataclass(frozen=True)
class Groups:
    """M groups to draw: candidates (indices into those offered), rollouts of each, and weights of mean about 1, (M,).

    Each group counts weight/M of the gradient. live: the share of live groups that the forecast promises. saving: the
    share of rollouts that the draw is predicted to save against uniform draws of the best single group size, NaN where
    it was not made to save. passed: candidates that were looked at, from the first one on.
    """

    candidates: Ints
    sizes: Ints
    weights: Floats
    live: float
    saving: float
    passed: int


@dataclass(frozen=True)
class Optimal:
    """The draw of least error. weighted: whether groups count 1/q, so that every problem counts the same in the mean.

    sizes: "own" for a group size of each problem, "one" for one of all, "given" for that of the run. largest: most
    rollouts of a group. floor: share of the draws that is uniform, so that weights stay below 1/floor. pool: problems
    among which a batch is drawn.
    """

    weighted: bool = True
    sizes: str = "own"
    largest: int = 32
    floor: float = 0.2
    pool: int = 1024
    norms: Norms = assumed.DEFAULT

    def choices(self, group: int) -> Ints:
        """The group sizes to choose from."""
        return np.array([group] if self.sizes == "given" else [g for g in theory.SIZES if g <= self.largest])

    def groups(self, rates: Rates, budget: int, group: int, start: float) -> Groups:
        """Groups of about `budget` rollouts in expectation; start: uniform in [0, 1).

        Draws are systematic, so a problem whose expected count is below 1 is drawn at most once.
        """
        share, sizes = np.full(len(rates.a), 1 / len(rates.a)), self.choices(group)
        second, mean_squared = self.norms.second_moments(rates, sizes), self.norms.mean_squared(rates)
        find = theory.own_sizes if self.sizes == "own" else theory.one_size
        draw = find(second, sizes, share, mean_squared, self.floor)
        plain = theory.uniform(second, sizes, share, mean_squared)
        count = max(1, round(budget / draw.rollouts))
        times = theory.systematic(count * draw.chances / draw.chances.sum(), start)
        which = np.repeat(np.arange(len(times)), times)
        groups = draw.sizes[which]
        weights = share[which] / draw.chances[which] if self.weighted else np.ones(len(which))
        saving = 1 - draw.noise / plain.noise if plain.noise > 0 else float("nan")
        return Groups(which, groups, weights, live(rates.take(which), groups), saving, count)


def live(rates: Rates, sizes: Ints) -> float:
    """Mean chance that a group has two different rewards."""
    return float(1 - rates.dead(sizes).mean())


def second_stage(mixed: NDArray[np.bool_], rest: int, largest: int) -> Ints:
    """Further rollouts of screened problems (M,): `rest` shared equally by those whose screening was mixed.

    None gets a single one or more than `largest`; where `rest` is short the first ones are served.
    """
    sizes = np.zeros(len(mixed), np.int64)
    worth = np.flatnonzero(mixed)[: rest // 2]
    if len(worth):
        each, more = divmod(rest, len(worth))
        sizes[worth] = np.minimum(each + (np.arange(len(worth)) < more), largest)
    return sizes
