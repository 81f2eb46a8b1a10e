"""Several rewards: weights for each, and how much each really counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.text import listed, percent, visible
from grposcope.instruments import has
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold
from grposcope.maths.aggregation import SCALES

DOMINANT = 0.9
"""Effective share of one reward, of several with a weight of their own, from which the others hardly count."""


def weights(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """One weight per reward function."""
    given, count = config.get("reward_weights"), config.reward_functions
    if isinstance(given, list) and count is not None and len(given) != count:
        yield Fault("failing", "weights and rewards differ in number", f"{len(given)} weights for {count} reward "
                      "functions: TRL refuses to start", "give one weight per "
                      "function", ("reward_weights",))  # fmt: skip


def effective_weights(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """The share of each reward in what is learned: weight × spread where the sum is normalised, else the weight
    alone.
    """
    given, count = config.get("reward_weights"), config.reward_functions
    number = len(given) if isinstance(given, list) else count or 0
    if number < 2:
        return
    after = config.get("multi_objective_aggregation") == "normalize_then_sum"
    keys = ("reward_weights", "multi_objective_aggregation")
    measured = list(_of_rollouts(config, known, number, after))
    if measured:
        yield from measured
        return
    if after:
        yield Fault("note", "rare rewards count fully", "each reward is divided by its own standard deviation "
                      "before the rewards are added: one that varies in few groups counts there as much as the main "
                      "one", "give such rewards small weights", keys)  # fmt: skip
        return
    spreads = _spreads(known)
    if not spreads:
        yield Untold("the standard deviation of each reward is not known: give an earlier run that logged it (--run)")
        return
    if len(spreads) != number:
        yield Untold(f"the earlier run has {len(spreads)} rewards, and this one {number}")
        return
    values = [float(w) for w in given] if isinstance(given, list) else [1.0] * number
    sizes = [abs(w) * s for w, s in zip(values, spreads.values(), strict=True)]
    if not sum(sizes) > 0:
        return
    shares = {name: size / sum(sizes) for name, size in zip(spreads, sizes, strict=True)}
    top = max(shares, key=shares.__getitem__)
    if shares[top] >= DOMINANT:
        told = listed([f"{name} {percent(share, 1)}" for name, share in shares.items()])
        yield Fault("warning", f"only {top} counts", "rewards are added and then divided by the standard deviation "
                      f"of their sum: each counts by weight × standard deviation: {told}", "set reward_weights by the "
                      "standard deviation of each or multi_objective_aggregation=normalize_then_sum", keys)  # fmt: skip


def _of_rollouts(config: TrainerConfig, known: Known, number: int, after: bool) -> Iterator[Fault | Untold]:
    """What the weights will become, from the rollouts of an earlier run; nothing where it has none of functions."""
    if known.run is None or not has("rewards"):
        return
    from grposcope.instruments.rewards import RewardSettings, source
    from grposcope.maths.component_weights import measure

    scale = {True: "group", False: "none", None: "group"}.get(config.get("scale_rewards"), config.get("scale_rewards"))
    how = "normalize_then_sum" if after else f"sum_then_normalize:{scale if scale in SCALES else 'group'}"
    drawn = source.of_run(known.run, RewardSettings(aggregation=how))
    if drawn is None:
        return
    if len(drawn.given.names) != number:
        yield Untold(f"the earlier run has {len(drawn.given.names)} rewards, and this one {number}")
        return
    given = config.get("reward_weights")
    weights = [float(w) for w in given] if isinstance(given, list) else [1.0] * number
    if not any(weights):
        yield Fault("failing", "all reward weights are 0", "the policy is trained on no reward",
                    "give at least one weight that is not 0", ("reward_weights",))  # fmt: skip
        return
    found = measure(drawn.given, weights, drawn.how, drawn.prompts)
    told = listed([f"{visible(one.name, 40)} {percent(one.share.value)} (intended: {percent(one.intended_share)})"
                   for one in found.components])  # fmt: skip
    keys = ("reward_weights", "multi_objective_aggregation")
    for one in found.components:
        name = visible(one.name, 40)
        if one.dead:
            yield Fault(
                "warning",
                f"{name} never varies",
                f"it is {one.constant:g} on every earlier rollout, so the policy learns nothing from it",
                "check this reward function by hand",
                ("reward_weights",),
            )
        elif one.muted:
            yield Fault("warning", f"{name} will hardly count", "within the groups of earlier rollouts the rewards "
                        f"have these shares of the weight in the advantage: {told}", "raise its weight, or "
                        "multi_objective_aggregation=normalize_then_sum", keys)  # fmt: skip
    if not any(one.dead or one.muted for one in found.components):
        yield Fault("note", "the weight of each reward", "within the groups of earlier rollouts the rewards have "
                    f"these shares of the weight in the advantage: {told}", "nothing, if you intend this",
                    keys)  # fmt: skip


def _spreads(known: Known) -> dict[str, float]:
    """Mean standard deviation of each reward of the earlier run, by name; empty where it logged none."""
    if known.run is None:
        return {}
    columns = {
        name.removeprefix("component_std/"): column
        for name, column in known.run.table.items()
        if name.startswith("component_std/")
    }
    return {name: float(np.nanmean(column)) for name, column in columns.items() if np.isfinite(column).any()}
