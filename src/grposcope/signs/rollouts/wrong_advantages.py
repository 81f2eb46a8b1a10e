"""Which fault explains advantages that are not those of the recipe: other groups, permuted rewards, a sign, a factor.

An explanation is a function of a batch that says which rows it explains (N,). Advantages see rewards only through the
recipe, so a permutation that explains all of a batch's numbers is what happened to its rewards, up to ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from grposcope.core.run import Bools, Floats, Ints
from grposcope.signs.rollouts import recipes
from grposcope.signs.rollouts.recipes import AdvantageRecipe

POOL, GROUPS, KEPT = 600, 3, 50
"""Of the search for rewards of other groups: distinct rewards, groups looked at, and pairs followed up."""


@dataclass(frozen=True)
class TrainedBatch:
    """The rows of a step, N of them: places in the evidence, rewards, groups from 0, advantages that were trained on.

    parts (K, N), weights (K,): rewards by function. relative, absolute: precision at which advantages were stored.
    """

    step: int
    places: Ints
    rewards: Floats
    group: Ints
    advantages: Floats
    parts: Floats | None
    weights: Floats | None
    relative: float
    absolute: float

    def under(self, recipe: AdvantageRecipe) -> tuple[Floats, Floats]:
        """Advantages of the recipe and their tolerance, each (N,)."""
        expected, error = recipes.advantages(recipe, self.rewards, self.group, self.parts, self.weights)
        return expected, error + self.relative * np.abs(expected) + self.absolute

    def fits(self, recipe: AdvantageRecipe) -> Bools:
        """Rows (N,) whose advantage is that of the recipe; one that is NaN is not compared."""
        expected, tolerance = self.under(recipe)
        return (np.abs(self.advantages - expected) <= tolerance) | np.isnan(self.advantages)

    def of_rewards(self, rewards: Floats) -> TrainedBatch:
        """With other rewards in the places of these."""
        return replace(self, rewards=rewards, parts=None)


def faults(recipe: AdvantageRecipe, batch: TrainedBatch) -> Iterator[tuple[str, str, Bools]]:
    """(fault, in words, rows (N,) that it explains) of each fault that explains a batch, or groups of it."""
    right = batch.fits(recipe)
    expected, tolerance = batch.under(recipe)
    batch = replace(batch, advantages=np.where(np.isnan(batch.advantages), expected, batch.advantages))
    yield "sign", "have the opposite sign", _whole(np.abs(batch.advantages + expected) <= tolerance)
    if (times := _of_first(batch)) is not None:
        size = "" if abs(times - 1) < 1e-6 else f"{times:.4g} × "
        said = f"are {size}(r − reward of the first rollout of the group)"
        yield "baseline", said, np.ones(len(right), bool)
    if recipe.baseline == "second":
        others = right | (np.abs(batch.advantages - batch.rewards) <= batch.absolute + 1e-6 * np.abs(batch.rewards))
        yield "baseline", "are r for others than the best of their group, whose advantage is 0 there", _whole(others)
    factor = _factor(batch, expected, tolerance)
    if factor is not None:
        yield "factor", f"are {factor:.4g} times as large", np.ones(len(right), bool)
    many = len(np.unique(batch.group[~right])) >= 2  # one often fits by chance
    if many:
        yield from _in_the_batch(recipe, batch)
    yield from _among_siblings(recipe, batch, right)
    yield (
        "shuffled in the group",
        "match rewards shuffled within groups",
        right | _sorted_in_group(batch, expected, tolerance),
    )
    turned = np.abs(batch.advantages + expected) <= tolerance
    yield "sign", "have the opposite sign", _whole(right | turned)
    if not many:
        yield from _in_the_batch(recipe, batch)
    yield from _other_groups(recipe, batch, right)
    if _shuffled_over_all(recipe, batch, right):
        yield "shuffled across the batch", "match rewards shuffled across the batch", np.ones(len(right), bool)
    if _in_other_rows(batch, expected, tolerance):
        yield "in other rows", "are the right ones in another order of the rows", np.ones(len(right), bool)


def factor(recipe: AdvantageRecipe, batch: TrainedBatch) -> float | None:
    """The number that all advantages of a batch are multiplied by; None where it is none."""
    expected, tolerance = batch.under(recipe)
    there = np.where(np.isnan(batch.advantages), expected, batch.advantages)
    return _factor(replace(batch, advantages=there), expected, tolerance)


def weights(recipe: AdvantageRecipe, batch: TrainedBatch) -> Floats | None:
    """Weights (K,) of the reward functions, the largest 1, that explain a batch; None if none do.

    With c_k the centred rewards of function k in a group, advantages are Σ_k w_k c_k over a number of the group's. What
    is left of Σ_k w_k c_k beside the direction of the advantages is linear in w, and its null vector are the weights.
    """
    if batch.parts is None or len(batch.parts) < 2:
        return None
    if not (np.isfinite(batch.parts).all() and np.isfinite(batch.advantages).all()):
        return None
    lines = _beside(recipe, batch, batch.parts)
    if not lines:
        return None
    stacked = np.concatenate(lines)
    if not np.isfinite(stacked).all():  # of rewards whose squares are beyond float
        return None
    _, values, vectors = np.linalg.svd(stacked, full_matrices=False)
    if len(values) < len(batch.parts) or values[-1] > 1e-3 * values[0] or values[-2] <= 1e-3 * values[0]:
        return None
    direction = vectors[-1] / vectors[-1][np.argmax(np.abs(vectors[-1]))]
    total = direction @ batch.parts
    if recipe.scale == "each":
        return next((own for own in (direction, -direction) if _fit_each(recipe, batch, own)), None)
    if np.nansum(total * batch.advantages) < 0:
        direction, total = -direction, -total
    if recipe.scale == "none":
        made, _ = batch.of_rewards(total).under(recipe)
        if not made.any():
            return None
        direction = direction * float(made @ batch.advantages) / float(made @ made)
        total = direction @ batch.parts
    return direction if bool(batch.of_rewards(total).fits(recipe).mean() > 0.99) else None


def _beside(recipe: AdvantageRecipe, batch: TrainedBatch, parts: Floats) -> list[Floats]:
    """What is left of each function's centred rewards, of `parts` (K, N), beside the direction of the advantages of a
    group, (G, K) for each group that has any."""
    lines = []
    for number in range(int(batch.group.max()) + 1):
        here = batch.group == number
        along = batch.advantages[here]
        length = float(along @ along)
        if length == 0:
            continue
        centred = parts[:, here] - parts[:, here].mean(1, keepdims=True)
        if recipe.scale == "each":
            centred /= _deviations(centred, recipe)
        lines.append(centred.T - np.outer(along, centred @ along) / length)
    return lines


def _deviations(centred: Floats, recipe: AdvantageRecipe) -> Floats:
    """Deviations (K, 1) of centred rewards (K, G) of a group with the ε of the recipe; 1 where there is none."""
    spread = np.sqrt((centred**2).sum(1, keepdims=True) / max(centred.shape[1] - recipe.ddof, 1))
    return np.where(spread > 0, spread + recipe.epsilon, 1.0)


def _fit_each(recipe: AdvantageRecipe, batch: TrainedBatch, weights: Floats) -> bool:
    """Whether the advantages are those of functions standardized one by one, with these weights (K,)."""
    return bool(replace(batch, weights=weights).fits(recipe).mean() > 0.99)


def _whole(rows: Bools) -> Bools:
    """All rows or none."""
    return np.full(len(rows), bool(rows.all()))


def _of_first(batch: TrainedBatch) -> float | None:
    """The number by which the rewards less that of the first rollout of their group are the advantages; None else."""
    firsts = np.unique(batch.group, return_index=True)[1]
    less = batch.rewards - batch.rewards[firsts][batch.group]
    square = float(less @ less)
    times = float(less @ batch.advantages) / square if square > 0 else 0.0
    near = np.abs(batch.advantages - times * less) <= batch.absolute + (1e-6 + batch.relative) * np.abs(times * less)
    return times if times > 0 and bool(near.all()) else None


def _factor(batch: TrainedBatch, factors: Floats, tolerance: Floats) -> float | None:
    """One number that all advantages are multiplied by."""
    square = float(factors @ factors)
    factor = float(factors @ batch.advantages) / square if square else 0.0
    slack = recipes.ROUNDING * float(np.abs(batch.advantages).max(initial=0.0))  # of a mean that is 0 but for rounding
    near = np.abs(batch.advantages - factor * factors) <= tolerance * max(abs(factor), 1e-12) + slack
    return factor if factor > 0 and bool(near.all()) else None


def _in_the_batch(recipe: AdvantageRecipe, batch: TrainedBatch) -> Iterator[tuple[str, str, Bools]]:
    """Rewards shifted by k places in the whole batch, at most 64 either way."""
    count = len(batch.rewards)
    for k in (*range(1, min(count, 65)), *range(max(count - 64, 65), count)):
        shifted = np.roll(batch.rewards, k)
        if batch.of_rewards(shifted).fits(recipe).all():
            by = k if k <= count // 2 else k - count
            yield "shifted in the batch", f"match rewards shifted by {by} in the batch", np.ones(count, bool)
            return


def _among_siblings(recipe: AdvantageRecipe, batch: TrainedBatch, right: Bools) -> Iterator[tuple[str, str, Bools]]:
    """Rewards shifted by k places in every wrong group, where there are two at least."""
    places = _columns(batch.group)
    wrong = np.unique(batch.group[~right])
    if places is None or len(wrong) < 2 or places.shape[1] < 3:
        return
    for k in range(1, places.shape[1]):
        rewards = batch.rewards.copy()
        rewards[places[wrong]] = np.roll(batch.rewards[places[wrong]], k, axis=1)
        if batch.of_rewards(rewards).fits(recipe).all():
            by = k if k <= places.shape[1] // 2 else k - places.shape[1]
            yield (
                "shifted among siblings",
                f"match rewards shifted by {by} among siblings",
                np.ones(len(right), bool),
            )
            return


def _columns(group: Ints) -> Ints | None:
    """Places (P, G) of the rows of each group, None for groups of several sizes."""
    counts = np.bincount(group)
    if not len(counts) or counts.min() != counts.max():
        return None
    return np.argsort(group, kind="stable").reshape(len(counts), -1)


def _sorted_in_group(batch: TrainedBatch, values: Floats, tolerance: Floats) -> Bools:
    """Rows of groups that have the right advantages in another order."""
    explained = np.zeros(len(values), bool)
    order = np.lexsort((values, batch.group))
    other = np.lexsort((batch.advantages, batch.group))
    near = np.abs(values[order] - batch.advantages[other]) <= tolerance[order]
    bad = np.bincount(batch.group[order], ~near) > 0
    explained[:] = ~bad[batch.group]
    return explained


def _other_groups(recipe: AdvantageRecipe, batch: TrainedBatch, right: Bools) -> Iterator[tuple[str, str, Bools]]:
    """Groups that were split, merged or ordered otherwise."""
    count = len(batch.group)
    places = _columns(batch.group)
    if places is None or recipe.baseline in ("none", "batch"):
        return
    prompts, size = places.shape
    flat = np.empty(count, np.int64)
    flat[places.ravel()] = np.arange(count)
    for divisor in [part for part in range(size - 1, 0, -1) if size % part == 0]:
        fits = replace(batch, group=flat // divisor).fits(recipe)
        if fits.all() and _are_0_alone(flat // divisor, batch.advantages):
            yield "groups split", f"match groups of {divisor} instead of {size}", fits
            return
    for times in [times for times in range(2, prompts + 1) if prompts % times == 0]:
        fits = replace(batch, group=flat // (size * times)).fits(recipe)
        if fits.all():
            yield "groups merged", f"match groups of {size * times:,} instead of {size}", fits
            return
    if prompts > 1 and size > 1:
        fits = replace(batch, group=np.arange(count) % prompts).fits(recipe)
        if fits.all() and (batch.group != np.arange(count) % prompts).any():
            yield "groups in another order", "match groups formed across prompts", fits
            return
        in_turn = np.arange(count) // size
        fits = replace(batch, group=in_turn).fits(recipe)
        if fits.all() and (flat // size != in_turn).any():
            words = f"match groups of {size} rows in turn, which hold several prompts because prompts are interleaved"
            yield "groups in another order", words, fits
            return
    explained = right.copy()
    for number in np.unique(batch.group[~right]):
        here = places[number]
        for cut in range(1, size):
            halves = (np.arange(size) >= cut).astype(np.int64)
            small = TrainedBatch(batch.step, here, batch.rewards[here], halves, batch.advantages[here], None, None,
                          batch.relative, batch.absolute)  # fmt: skip
            alone = _are_0_alone(halves, small.advantages)
            if recipe.scale != "batch" and alone and small.fits(recipe).all():
                explained[here] = True
                break
    yield "groups split", "match groups that were split", explained


def _are_0_alone(group: Ints, advantages: Floats) -> bool:
    """Whether rollouts that are alone in their group have an advantage of 0: rounding over ε alone fits anything."""
    return not bool(advantages[np.bincount(group)[group] == 1].any())


def _shuffled_over_all(recipe: AdvantageRecipe, batch: TrainedBatch, right: Bools) -> bool:
    """Whether wrong groups have the advantages of rewards that others of the batch had."""
    expected, tolerance = batch.under(recipe)
    if recipe.baseline in ("none", "batch"):
        near = np.abs(np.sort(expected) - np.sort(batch.advantages)) <= np.sort(tolerance)
        return bool(near.all())
    pool = np.unique(batch.rewards)
    if not 2 <= len(pool) <= POOL or recipe.scale == "each":
        return False
    scaled = batch.advantages
    if recipe.scale == "batch":
        spread = float(np.std(batch.rewards, ddof=recipe.ddof)) + recipe.epsilon
        scaled, recipe = batch.advantages * spread, AdvantageRecipe(recipe.baseline, "none")
    live = [number for number in np.unique(batch.group[~right]) if np.ptp(scaled[batch.group == number]) > 0]
    if not live:
        wrong = scaled[~right]
        return bool(len(wrong)) and bool((wrong == 0).all()) and len(np.unique(batch.group[~right])) > 1
    return all(_from_pool(recipe, scaled[batch.group == number], pool, batch) for number in live[:GROUPS])


def _in_other_rows(batch: TrainedBatch, expected: Floats, tolerance: Floats) -> bool:
    """Whether a batch of several groups has exactly its right advantages, in other rows: those of each group belong to
    its rewards, so that no other rewards or groups give them all."""
    if len(np.unique(batch.group)) < 2:
        return False
    order = np.argsort(expected)
    near = np.abs(np.sort(batch.advantages) - expected[order]) <= tolerance[order]
    return bool(near.all())


def _from_pool(recipe: AdvantageRecipe, advantages: Floats, pool: Floats, batch: TrainedBatch) -> bool:
    """Whether rewards of the pool give these advantages of a group."""
    low, high = (grid.ravel() for grid in np.meshgrid(np.arange(len(pool)), np.arange(len(pool)), indexing="ij"))
    low, high = low[low < high], high[low < high]
    share = (advantages - advantages.min()) / np.ptp(advantages)
    rewards = pool[low, None] + share * (pool[high] - pool[low])[:, None]
    near = np.clip(np.searchsorted(pool, rewards), 1, len(pool) - 1)
    nearest = np.where(rewards - pool[near - 1] < pool[near] - rewards, pool[near - 1], pool[near])
    slack = (1e-4 + batch.relative + batch.absolute / np.ptp(advantages)) * (pool[high] - pool[low])[:, None]
    good = np.flatnonzero((np.abs(nearest - rewards) <= slack).all(1))
    if not len(good):
        return False
    group = np.repeat(np.arange(len(good[:KEPT])), len(advantages))
    tried = TrainedBatch(batch.step, batch.places, nearest[good[:KEPT]].ravel(), group,
                  np.tile(advantages, len(good[:KEPT])), None, None, batch.relative, batch.absolute)  # fmt: skip
    return bool(tried.fits(recipe).reshape(-1, len(advantages)).all(1).any())
