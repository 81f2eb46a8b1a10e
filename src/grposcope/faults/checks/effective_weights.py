"""The check of how much each of several rewards will count: some are muted, constant, or never paid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from grposcope.core.fault import SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import listed, percent, visible
from grposcope.faults.known_task import Known
from grposcope.instruments import has
from grposcope.maths.aggregation import SCALES

if TYPE_CHECKING:
    from grposcope.instruments.rewards.source import RewardRollouts

DOMINANT = 0.9
"""Effective share of one reward, of several with a weight of their own, from which the others hardly count."""

WEIGHTS, AGGREGATION = "reward_weights", "multi_objective_aggregation"

SOURCE = "arXiv:2601.05242 (GDPO); TRL #4841: https://github.com/huggingface/trl/issues/4841"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The share of each reward in what is learned: of rollouts of an earlier run; else weight × spread, where the sum
    is normalised."""
    number = count(config)
    weights = _given_weights(config, number)
    if number < 2 or not any(weights):
        return
    rollouts = drawn(config, facts)
    if rollouts is not None:
        yield from _of_rollouts(config, rollouts, weights)
    elif config.get(AGGREGATION) != "normalize_then_sum":
        yield from _of_spreads(config, _spreads(facts), weights)


def count(config: Settings) -> int:
    """How many rewards there are; 0 where that is not known."""
    weights = config.get(WEIGHTS)
    return len(weights) if isinstance(weights, list) else config.reward_functions or 0


def _given_weights(config: Settings, number: int) -> list[float]:
    """The weights of all rewards, 1 where none are given."""
    weights = config.get(WEIGHTS)
    return [float(weight) for weight in weights] if isinstance(weights, list) else [1.0] * number


def drawn(config: Settings, facts: Known) -> RewardRollouts | None:
    """The rollouts of an earlier run with the rewards of single functions; None where there are none."""
    if facts.run is None or not has("rewards"):
        return None
    from grposcope.instruments.rewards import RewardSettings, source

    scaled = config.get("scale_rewards")
    scale = {True: "group", False: "none", None: "group"}.get(scaled, scaled)
    after = config.get(AGGREGATION) == "normalize_then_sum"
    how = "normalize_then_sum" if after else f"sum_then_normalize:{scale if scale in SCALES else 'group'}"
    return source.of_run(facts.run, RewardSettings(aggregation=how))


def _of_rollouts(config: Settings, rollouts: RewardRollouts, weights: list[float]) -> Iterator[Finding]:
    """What the weights become within the groups of these rollouts."""
    from grposcope.maths.component_weights import measure

    names = rollouts.given.names
    if len(names) != len(weights):
        yield cannot_tell(f"the earlier run has {len(names)} rewards, and this one {len(weights)}")
        return
    components = measure(rollouts.given, weights, rollouts.how, rollouts.prompts).components
    told = listed([
        f"{visible(each.name, 40)} {percent(each.share.value)} (intended: {percent(each.intended_share)})"
        for each in components
    ])  # fmt: skip
    for each in components:
        name = visible(each.name, 40)
        if each.dead:
            yield fact(
                True,
                f"it is {each.constant:g} on every earlier rollout, so the policy learns nothing from it",
                config.signs(WEIGHTS),
                fault="constant component" if each.constant else "never paid",
                grade="warning",
                brief=f"{name} never varies",
                remedy="check this reward function by hand",
            )
        elif each.muted:
            yield fact(
                True,
                f"within the groups of earlier rollouts the rewards have these shares of the weight in the "
                f"advantage: {told}",
                config.signs(WEIGHTS, AGGREGATION),
                grade="warning",
                brief=f"{name} will hardly count",
                remedy="raise its weight, or multi_objective_aggregation=normalize_then_sum",
            )
    if not any(each.dead or each.muted for each in components):
        yield fact(False, f"within the groups of earlier rollouts the rewards have these shares of the weight in the "
                          f"advantage: {told}")  # fmt: skip


def _of_spreads(config: Settings, spreads: dict[str, float], weights: list[float]) -> Iterator[Finding]:
    """Weight × standard deviation of each reward, by which it counts where the sum is normalised."""
    if not spreads:
        yield cannot_tell(
            "the standard deviation of each reward is not known: give an earlier run that logged it (--run)",
            "component_std",
        )
        return
    if len(spreads) != len(weights):
        yield cannot_tell(f"the earlier run has {len(spreads)} rewards, and this one {len(weights)}")
        return
    sizes = [abs(weight) * spread for weight, spread in zip(weights, spreads.values(), strict=True)]
    if not sum(sizes) > 0:
        return
    shares = {name: size / sum(sizes) for name, size in zip(spreads, sizes, strict=True)}
    top = max(shares, key=shares.__getitem__)
    if shares[top] >= DOMINANT:
        told = listed([f"{name} {percent(share, 1)}" for name, share in shares.items()])
        yield fact(
            True,
            "rewards are added and then divided by the standard deviation of their sum: each counts by weight × "
            f"standard deviation: {told}",
            config.signs(WEIGHTS, AGGREGATION),
            grade="warning",
            brief=f"only {top} counts",
            remedy="set reward_weights by the standard deviation of each or "
            "multi_objective_aggregation=normalize_then_sum",
        )


def _spreads(facts: Known) -> dict[str, float]:
    """Mean standard deviation of each reward of the earlier run, by name; empty where it logged none."""
    if facts.run is None:
        return {}
    columns = {
        name.removeprefix("component_std/"): column
        for name, column in facts.run.table.items()
        if name.startswith("component_std/")
    }
    return {name: float(np.nanmean(column)) for name, column in columns.items() if np.isfinite(column).any()}


CHECK = SettingsCheck(
    "muted component",
    _settings,
    ("trl",),
    "several rewards of which one hardly counts, or never varies",
    ("warning",),
    SOURCE,
)
"""Tells muted component, constant component and never paid apart."""
