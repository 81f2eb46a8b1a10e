"""Which problems a batch draws, with how many rollouts each, and what each group counts: the policies of allocation.

All are pure: from candidates in the order of the data, what is known of their success rates and random numbers, to
`Picks`. The rewards of a batch never enter its own picks, but for the second stage of `two-stage`, which says what that
does to the objective. `ALLOCATORS` names those that take an `Offer` and the values of their settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.allocation import optimal
from grposcope.allocation.beta import Rates
from grposcope.allocation.norms import Norms

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Values = Mapping[str, Any]
"""Settings of an allocator by name."""


@dataclass(frozen=True)
class Offer:
    """What a batch is picked from: C candidates, and the batch that the run asks for.

    rates: what is known of their success rates, in the order of the data. prompts, group: P and G of the run, which has
    P·G rollouts to spend. random: uniform in [0, 1), (C,), anew for each batch.
    """

    rates: Rates
    prompts: int
    group: int
    random: Floats


@dataclass(frozen=True)
class Picks:
    """M groups to draw: candidates (indices into those offered), rollouts of each, and weights of mean about 1.

    Each group counts weight/M of the gradient. live: the share of live groups that the forecast promises, NaN without
    one. saving: the share of rollouts that the draw is predicted to save against uniform draws of the best single group
    size, NaN where it was not made to save. passed: candidates that were looked at, from the first one on.
    """

    candidates: Ints
    sizes: Ints
    weights: Floats
    live: float
    saving: float
    passed: int


def promised(rates: Rates, sizes: Ints) -> float:
    """Mean chance that a group has two different rewards."""
    return float(1 - rates.dead(sizes).mean()) if len(sizes) else float("nan")


def groups_of_one_size(rates: Rates, which: Ints, group: int, passed: int) -> Picks:
    """A group of `group` rollouts for each of the candidates `which`, all of weight 1."""
    sizes = np.full(len(which), group)
    return Picks(which, sizes, np.ones(len(which)), promised(rates.take(which), sizes), float("nan"), passed)


def filtered(rates: Rates, prompts: int, group: int, dead: float, kept: NDArray[np.bool_]) -> Picks:
    """The first `prompts` candidates, without those whose chance of a dead group is above `dead`.

    kept (C,): which of these are taken all the same, so that the history of problems left out does not end. Where too
    few are left, the others with the greatest chance of a live group fill up.
    """
    chance = rates.dead(group)
    good = np.flatnonzero((chance <= dead) | kept)
    passed = int(good[prompts - 1]) + 1 if len(good) >= prompts else len(chance)
    if len(good) < prompts:
        others = np.setdiff1d(np.argsort(chance, kind="stable"), good, assume_unique=True)
        others = others[np.argsort(chance[others], kind="stable")]
        good = np.concatenate([good, others[: prompts - len(good)]])
    return groups_of_one_size(rates, good[:prompts], group, passed)


def best(
    rates: Rates, budget: int, sizes: Ints, norms: Norms, floor: float, start: float, own: bool, weighted: bool
) -> Picks:
    """Draws with the chances and the group sizes of least error (`optimal`), about `budget` rollouts in expectation.

    sizes: to choose from; own: whether each problem has its own. start: uniform in [0, 1). weighted: whether groups
    count 1/q, so that every problem counts the same in the mean; else they count alike, and a problem counts by how
    often it is drawn. Draws are systematic, so a problem whose expected count is below 1 is drawn at most once.
    """
    share = np.full(len(rates.a), 1 / len(rates.a))
    second, mean_squared = norms.second_moments(rates, sizes), norms.mean_squared(rates)
    find = optimal.own_sizes if own else optimal.one_size
    draw = find(second, sizes, share, mean_squared, floor)
    plain = optimal.uniform(second, sizes, share, mean_squared)
    count = max(1, round(budget / draw.rollouts))
    times = optimal.systematic(count * draw.chances / draw.chances.sum(), start)
    which = np.repeat(np.arange(len(times)), times)
    groups = draw.sizes[which]
    weights = share[which] / draw.chances[which] if weighted else np.ones(len(which))
    saving = 1 - draw.noise / plain.noise if plain.noise > 0 else float("nan")
    return Picks(which, groups, weights, promised(rates.take(which), groups), saving, count)


def without_dead(offer: Offer, values: Values) -> Picks:
    """`filtered` with a share `explore` of the candidates taken all the same."""
    kept = offer.random < values["explore"]
    return filtered(offer.rates, offer.prompts, offer.group, values["dead"], kept)


def least_error(offer: Offer, values: Values) -> Picks:
    """`best` of the batch's budget with these settings."""
    sizes = [offer.group] if values["sizes"] == "given" else [g for g in optimal.SIZES if g <= values["largest"]]
    return best(
        offer.rates,
        offer.prompts * offer.group,
        np.array(sizes),
        assumed(values),
        values["floor"],
        float(offer.random[0]),
        own=values["sizes"] == "own",
        weighted=values["weights"] == "inverse",
    )


def assumed(values: Values) -> Norms:
    """The norms of gradients that the settings of the optimal draw assume."""
    power, separation = values["power"], values["separation"]
    return Norms(separation * 0.25**-power, power, alignment=values["alignment"])


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
