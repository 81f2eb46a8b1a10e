"""The component rewards of a run, with the weights and the way of combining them, and what was assumed of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Run, once
from grposcope.core.text import listed, visible
from grposcope.instruments.rewards import RewardSettings
from grposcope.logs.rollout_columns import with_groups
from grposcope.maths.aggregation import METHODS, SCALES, Aggregation, Components, Floats, Ints, Scale
from grposcope.signs.rollouts.claims import advantages
from grposcope.signs.rollouts.recipes import AdvantageRecipe
from grposcope.signs.texts import sample

EXACT = 1e-6
"""Share of the reward's spread up to which a weighted sum of its components is the reward."""

_COMPARED = 2048
"""Rollouts, whole steps, whose advantages are compared with their rewards."""

_PARALLEL = 1e-6
"""1 less the cosine of two sets of weights up to which they are one but for their size."""

EPS = {"verl": 1e-6}
"""ε of an engine's deviations where it is not that of TRL."""


@dataclass(frozen=True)
class RewardRollouts:
    """Component rewards of the groups of a run.

    weights (K,): of `given.names`. steps (S,): of the batches of `given`. prompts (M,): the problem of each group.
    total (N,): the reward as it was logged. known: whether the weights stand in the log, were given, or follow from the
    rewards; else they are taken as 1. notes: what was assumed or left out, a sentence each.
    """

    given: Components
    weights: Floats
    how: Aggregation
    steps: Ints
    prompts: Ints
    total: Floats
    known: bool
    notes: tuple[str, ...] = ()


def of_run(run: Run, settings: RewardSettings | None = None) -> RewardRollouts | None:
    """The component rewards of a run's rollouts; None where it has none of two functions or more.

    UserError for settings that do not fit.
    """
    settings, groups = settings or RewardSettings(), run.groups
    if len(groups.components) < 2 or not len(groups):
        return None
    notes: list[str] = []
    names = _names(run, settings)
    rewards = np.stack([groups.components[name] for name in names], 1)
    infinite = np.isinf(rewards)
    if infinite.any():
        notes.append(f"{int(infinite.sum()):,} rewards are infinite and count as missing.")
    rewards = np.where(infinite, np.nan, rewards)
    empty = np.asarray(np.isnan(rewards).all(0))
    for name in [name for name, none in zip(names, empty, strict=True) if none]:
        notes.append(f"{visible(name, 40)} has no value for any rollout and is left out.")
    names = [name for name, none in zip(names, empty, strict=True) if not none]
    rewards = rewards[:, ~empty]
    if not names:
        return None
    steps, batch = np.unique(groups.step, return_inverse=True)
    owner = np.arange(len(groups)).repeat(groups.sizes)
    given = Components(tuple(names), rewards, owner, batch.astype(np.int64), groups.lengths)
    in_force, followed, compared = _of_advantages(run)
    how, assumed = aggregation(run, settings, groups.lengths is not None)
    if assumed and followed is not None:
        how, assumed = followed, []
    stated = _weights(run, settings, names, rewards, groups.rewards)
    weights, known, told = _with_those_in_force(stated, [in_force.get(name, 0.0) for name in names], names, compared)
    return RewardRollouts(given, weights, how, steps, groups.problem, groups.rewards, known, (*notes, *assumed, *told))


@once
def _of_advantages(run: Run) -> tuple[Mapping[str, float], Aggregation | None, str]:
    """What the advantages of the rollouts of a run follow: weights by function, empty where they are not told apart;
    the way of combining, None where it is none of METHODS; what was compared, a clause, empty where nothing could be.
    """
    rows = [row for row in sample.recorded(run, _COMPARED) if row.advantages is not None and row.rewards]
    try:
        followed = advantages.weights_in_force(with_groups(rows, None)) if rows else None
    except ValueError as none:
        return {}, None, f"{none} of {len(rows):,} rollouts"
    if followed is None:
        return {}, None, ""
    recipe, weights = followed
    return weights or {}, _aggregation_of(recipe), f"the advantages of {len(rows):,} rollouts are {recipe}"


def _aggregation_of(recipe: AdvantageRecipe) -> Aggregation | None:
    """The way of combining rewards that a recipe of advantages is; None where it is none of METHODS."""
    if recipe.scale == "each":
        return Aggregation("normalize_then_sum", eps=recipe.epsilon)
    scales: dict[str, Scale] = {"group": "group", "batch": "batch", "none": "none"}
    if recipe.baseline not in ("mean", "leave-one-out") or recipe.scale not in scales:
        return None
    return Aggregation("sum_then_normalize", scales[recipe.scale], recipe.epsilon)


def _names(run: Run, settings: RewardSettings) -> list[str]:
    """Names of the rewards: those that weights were given for, those of the configuration, else all."""
    every = list(run.groups.components)
    logged = run.setting("reward_names")
    named = list(_pairs(settings.weights)) if "=" in settings.weights else logged if isinstance(logged, list) else every
    lost = [str(name) for name in named if name not in every]
    if lost and "=" in settings.weights:
        raise UserError(
            f"no reward is named {listed([visible(name, 40) for name in lost])}; they are "
            f"{listed([visible(name, 40) for name in every])}"
        )
    return [name for name in named if name in every] or every


def _pairs(text: str) -> dict[str, float]:
    """name=weight,name=weight as a dict; UserError for anything else."""
    found = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.rpartition("=")
        found[name.strip()] = _number(value)
    return found


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"the weight {visible(text, 40)!r} is not a finite number; write 1,0.5 or right=1,format=0.5")
    return value


def _weights(
    run: Run, settings: RewardSettings, names: Sequence[str], rewards: Floats, total: Floats
) -> tuple[Floats, bool, list[str]]:
    """The weights (K,), whether they are known, and what was assumed."""
    if settings.weights:
        return np.array(in_order(settings.weights, names)), True, []
    logged = run.config.get("rewards") or run.setting("reward_weights")
    if isinstance(logged, Mapping):
        return np.array([float(logged.get(name, 1.0)) for name in names]), True, []
    if isinstance(logged, str):
        return np.array(in_order(logged, names)), True, []
    if isinstance(logged, list) and len(logged) == len(names) and all(isinstance(w, int | float) for w in logged):
        return np.array(logged, np.float64), True, []
    if not run.groups.summed and (found := _that_make(rewards, total)) is not None:
        shown = listed([f"{w:.3g} × {visible(name, 40)}" for w, name in zip(found, names, strict=True)])
        return found, True, [f"The weights were computed from the rewards: the total is {shown}."]
    default = ", TRL's default" if run.meta.engine == "trl" else ""
    return (
        np.ones(len(names)),
        False,
        [f"The log does not have the weights of the rewards; each is taken as 1{default}."],
    )


def _with_those_in_force(
    stated: tuple[Floats, bool, list[str]], in_force: Sequence[float], names: Sequence[str], compared: str
) -> tuple[Floats, bool, list[str]]:
    """`stated` of `_weights` with the weights (K,) that the advantages follow in place of assumed ones, and with a note
    where they contradict those that were given. in_force: zeros where they are not told apart; compared: as in
    `_of_advantages`."""
    weights, known, told = stated
    size = float(np.linalg.norm(in_force) * np.linalg.norm(weights))
    same = size > 0 and float(np.dot(in_force, weights)) > (1 - _PARALLEL) * size
    shown = " + ".join(f"{weight:.3g} × {visible(name, 40)}" for weight, name in zip(in_force, names, strict=True))
    if any(in_force) and not known:
        said = f"The log does not have the weights of the rewards; they were read off the advantages: {compared}"
        return np.array(in_force), True, [f"{said} with r = {shown}."]
    if any(in_force) and not same and told:  # computed from a logged total, which did not train
        return np.array(in_force), True, [f"{told[0][:-1]}; but {compared} with r = {shown}: these weights are taken."]
    if any(in_force) and not same:
        return weights, known, [f"These weights are not those of the advantages: {compared} with r = {shown}."]
    if compared and not known:
        return weights, known, [*told, f"{compared[0].upper()}{compared[1:]}, which leaves the weights open."]
    return stated


def in_order(text: str, names: Sequence[str]) -> list[float]:
    """The weights of these names, in order or by name; UserError where they do not fit."""
    if "=" in text:
        given = _pairs(text)
        return [given.get(name, 1.0) for name in names]
    values = [_number(word) for word in text.split(",")]
    if len(values) != len(names):
        raise UserError(
            f"{len(values)} weights for {len(names)} rewards ({listed([visible(name, 40) for name in names])}); give "
            "one for each, or name them"
        )
    return values


def _that_make(rewards: Floats, total: Floats) -> Floats | None:
    """The only weights (K,) whose sum is the reward to EXACT of its spread; None where there are none, or several."""
    rows = np.isfinite(total) & ~np.isnan(rewards).any(1)
    x, y = rewards[rows], total[rows]
    if len(y) <= x.shape[1] or not np.ptp(y):
        return None
    weights, _, rank, _ = np.linalg.lstsq(x, y, rcond=1e-9)
    if rank < x.shape[1] or np.abs(x @ weights - y).max() > EXACT * y.std():
        return None
    return np.where(np.abs(weights) < EXACT, 0.0, weights)


def aggregation(run: Run, settings: RewardSettings, lengths: bool) -> tuple[Aggregation, list[str]]:
    """How the rewards were combined, and what was assumed. UserError for a name that is not known."""
    eps = EPS.get(run.meta.engine, 1e-4)
    if settings.aggregation:
        return _parsed(settings.aggregation, eps), []
    method, scale = run.setting("multi_objective_aggregation"), run.setting("scale_rewards")
    scale = {True: "group", False: "none", "True": "group", "False": "none"}.get(scale, scale)
    ours = run.setting("aggregation")
    if isinstance(ours, str) and ours.partition(":")[0] in METHODS:
        return _parsed(ours, eps), []
    if run.setting("advantage") == "gdpo" or scale == "gdpo":
        if run.meta.engine != "verl":
            return Aggregation("normalize_then_sum", eps=eps), []
        if lengths:
            return Aggregation("gdpo_tokens", eps=eps), ["Lengths are counted in characters instead of tokens."]
        return Aggregation("normalize_then_sum", eps=eps), [
            "Whitening is over completions, because no lengths are known."
        ]
    if method == "normalize_then_sum":
        return Aggregation("normalize_then_sum", eps=eps), []
    if scale in SCALES:
        return Aggregation("sum_then_normalize", scale, eps=eps), []
    if run.meta.engine == "grposcope":
        return _of_ours(run), []
    return Aggregation(eps=eps), [
        ("The log does not say how the rewards are combined; assumed: their sum, standardized within groups.")
    ]


def _of_ours(run: Run) -> Aggregation:
    """The way of a run of ours that sums its rewards, by its advantage."""
    objective: Any = run.config.get("objective")
    name = objective.get("advantage") if isinstance(objective, Mapping) else None
    name = name.get("function") if isinstance(name, Mapping) else name
    scales: dict[str, Scale] = {"batch_standardized": "batch", "whitened": "batch", "standardized": "group"}
    return Aggregation("sum_then_normalize", scales.get(str(name), "none") if name else "group")


def _parsed(text: str, eps: float = 1e-4) -> Aggregation:
    """METHOD or sum_then_normalize:SCALE; UserError for another."""
    method, _, scale = text.partition(":")
    if method not in METHODS or (scale and (scale not in SCALES or method != "sum_then_normalize")):
        known = ", ".join([*(f"sum_then_normalize:{one}" for one in SCALES), *METHODS[1:]])
        raise UserError(f"{visible(text, 40)!r} is not a way of combining rewards; use one of {known}")
    return Aggregation(method, scale or "group", eps)
