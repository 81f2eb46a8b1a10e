"""Advantages from rewards and groups, by every recipe that trainers are known to use, in NumPy.

A = (r − baseline) / (scale + ε). The baseline is the mean of the group, that of the others of the group
(leave-one-out), that of all (batch), for the best rollout alone the second best reward (second: pass@k,
arXiv:2503.19595), or 0. The scale is the standard deviation of the group or of all, with ddof 0 or 1, the mean of the
group's rewards (MaxRL), or 1. With "each" every function is standardised in its group, and their weighted sum over all
(GDPO, TRL's normalize_then_sum). A group of equal rewards has advantages of 0 (of the group baselines). Rewards of NaN
leave their group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from grposcope.core.run import Bools, Floats, Ints
from grposcope.signs.rollouts.evidence import Stated

ROUNDING = 2.0**-23
"""Relative rounding of float32, in which trainers work rewards out."""


@dataclass(frozen=True)
class AdvantageRecipe:
    """How advantages are made of rewards; fields as in Stated."""

    baseline: str
    scale: str
    ddof: int = 1
    epsilon: float = 0.0

    def __str__(self) -> str:
        baseline = {
            "mean": "(r − group mean)", "leave-one-out": "(r − mean of the others in the group)", "none": "r",
            "batch": "(r − mean of the batch)", "second": "(r − second best of the group, 0 for all but the best)",
        }[self.baseline]  # fmt: skip
        if self.scale == "none":
            return baseline.strip("()")
        if self.scale == "each":
            settings = f"ddof {self.ddof}, ε {self.epsilon:g}"
            return f"each function standardized in its group ({settings}), then their sum in the batch"
        whole = {"group": "of the group", "batch": "of the batch", "mean": ""}[self.scale]
        epsilon = f" + {self.epsilon:g}" if self.epsilon else ""
        if self.scale == "mean":
            return f"{baseline} / (group mean{epsilon})"
        return f"{baseline} / (standard deviation {whole} with ddof {self.ddof}{epsilon})"


def every(stated: Stated | None = None) -> Iterator[AdvantageRecipe]:
    """All recipes, those that trainers use most first; only those that agree with what is stated."""
    for recipe in _EVERY:
        if stated is None or _agrees(recipe, stated):
            yield recipe


def _agrees(recipe: AdvantageRecipe, stated: Stated) -> bool:
    """Whether a recipe is what is stated, as far as that goes."""
    if stated.baseline not in (None, recipe.baseline) or stated.scale not in (None, recipe.scale):
        return False
    divided = recipe.scale in ("group", "batch", "each")
    return (not divided or stated.ddof in (None, recipe.ddof)) and (
        recipe.scale == "none" or stated.epsilon is None or abs(stated.epsilon - recipe.epsilon) < 1e-12
    )


def states(stated: Stated) -> bool:
    """Whether anything is said of the recipe."""
    return stated.baseline is not None or stated.scale is not None


def advantages(
    recipe: AdvantageRecipe, rewards: Floats, group: Ints, parts: Floats | None = None, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Advantages (N,) and their error by rounding (N,) in float32, infinite where 0 is divided by 0.

    rewards (N,), group (N,) from 0. parts (K, N), weights (K,): rewards by function, for the scale "each".
    """
    if recipe.scale == "each":
        every_part = parts if parts is not None else rewards[None]
        return _each(recipe, every_part, np.ones(len(every_part)) if weights is None else weights, group)
    there = ~np.isnan(rewards)
    values = np.where(there, rewards, 0.0)
    count: Floats = np.bincount(group, there.astype(np.float64)).astype(np.float64)
    mean = np.bincount(group, values) / np.maximum(count, 1)
    size = np.bincount(group, np.abs(values)) / np.maximum(count, 1)
    top, noise = _top(recipe.baseline, values, there, mean, count, group)
    low, of_scale = _scale(recipe, values, there, mean, count, group)
    divisor = low + recipe.epsilon
    rounding = 2 * ROUNDING * (size[group] + np.abs(values)) * noise
    with np.errstate(divide="ignore", invalid="ignore"):
        advantages = np.where(divisor > 0, top / np.where(divisor > 0, divisor, 1.0), 0.0)
        relative = np.minimum(of_scale * ROUNDING * size[group] / np.where(divisor > 0, divisor, 1.0), 1.0)
        error = np.where(divisor > 0, rounding / np.where(divisor > 0, divisor, 1.0), np.inf * rounding)
        error = np.where((divisor <= 0) & (rounding == 0), 0.0, np.nan_to_num(error, nan=0.0, posinf=np.inf))
    return np.where(there, advantages, np.nan), error + np.abs(advantages) * (8 * ROUNDING + relative)


def _top(
    baseline: str, values: Floats, there: Bools, mean: Floats, count: Floats, group: Ints
) -> tuple[Floats, Floats]:
    """The reward less its baseline (N,), and where that rounds (N,), 1 or 0: the mean of one reward is that reward."""
    if baseline == "none":
        return values, np.zeros(len(values))
    if baseline == "batch":
        return values - values[there].mean() if there.any() else values, np.ones(len(values))
    if baseline == "second":
        return _of_the_best(values, there, group), np.ones(len(values))
    centred = values - mean[group]
    if baseline == "leave-one-out":
        centred = centred * (count / np.maximum(count - 1, 1))[group]
    return centred, (count > 1)[group].astype(np.float64)


def _of_the_best(values: Floats, there: Bools, group: Ints) -> Floats:
    """The best reward of each group less the second best, in the row of the best alone (N,)."""
    order = np.lexsort((np.where(there, -values, np.inf), group))
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    gained = np.zeros(len(values))
    last = np.append(first[1:], len(order)) - 1
    second = np.minimum(first + 1, last)
    gained[order[first]] = values[order[first]] - values[order[second]]
    return gained


def _scale(
    recipe: AdvantageRecipe, values: Floats, there: Bools, mean: Floats, count: Floats, group: Ints
) -> tuple[Floats, float]:
    """What the reward is divided by, and how much rounding of rewards moves it."""
    if recipe.scale == "none":
        return np.ones(len(values)), 0.0
    if recipe.scale == "mean":
        return mean[group], 1.0
    if recipe.scale == "group":
        with np.errstate(over="ignore"):
            squares = np.bincount(group, np.where(there, (values - mean[group]) ** 2, 0.0))
        return np.sqrt(squares / np.maximum(count - recipe.ddof, 1))[group], 4.0
    finite = values[there]
    spread = np.sqrt(((finite - finite.mean()) ** 2).sum() / max(len(finite) - recipe.ddof, 1)) if len(finite) else 0.0
    return np.full(len(values), spread), 4.0


def _each(recipe: AdvantageRecipe, parts: Floats, weights: Floats, group: Ints) -> tuple[Floats, Floats]:
    """The weighted sum of the standardised functions, whitened over all."""
    alone = AdvantageRecipe("mean", "group", recipe.ddof, recipe.epsilon)
    made = [advantages(alone, rewards, group) for rewards in parts]
    total = np.nansum(
        [weight * values_of_part for weight, (values_of_part, _) in zip(weights, made, strict=True)], axis=0
    )
    error = np.sum([np.where(np.isinf(bound), 0.0, bound) for _, bound in made], axis=0)
    whole = AdvantageRecipe("batch", "batch", recipe.ddof, recipe.epsilon)
    found, further = advantages(whole, total, np.zeros(len(total), np.int64))
    return found, further + 4 * error / (float(np.std(total)) or 1.0)


def _made() -> Iterator[AdvantageRecipe]:
    for scale in ("group", "batch"):
        for ddof in (1, 0):
            for epsilon in (1e-4, 1e-6, 1e-8, 1e-9, 0.0, 1e-5):
                yield AdvantageRecipe("mean", scale, ddof, epsilon)
    yield AdvantageRecipe("mean", "none")
    yield AdvantageRecipe("leave-one-out", "none")
    yield AdvantageRecipe("none", "none")
    for epsilon in (1e-6, 0.0, 1e-8, 1e-4):
        yield AdvantageRecipe("mean", "mean", 1, epsilon)
    for baseline, scale in (("leave-one-out", "group"), ("leave-one-out", "batch"), ("batch", "batch"),
                            ("none", "group"), ("none", "batch")):  # fmt: skip
        for ddof in (1, 0):
            for epsilon in (1e-4, 1e-6, 1e-8, 1e-9, 0.0, 1e-5):
                yield AdvantageRecipe(baseline, scale, ddof, epsilon)
    yield AdvantageRecipe("batch", "none")
    for epsilon in (1e-6, 1e-8, 1e-4):
        yield AdvantageRecipe("second", "group", 1, epsilon)
    yield AdvantageRecipe("second", "none")
    for ddof in (1, 0):
        for epsilon in (1e-4, 1e-6, 1e-8):
            yield AdvantageRecipe("mean", "each", ddof, epsilon)


_EVERY = tuple(_made())
