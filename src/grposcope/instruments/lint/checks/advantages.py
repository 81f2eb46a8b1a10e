"""Advantages divided by a standard deviation that can vanish, estimators that are not what was meant, and rewards that
no estimator reads token by token."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from grposcope.core.text import percent
from grposcope.instruments.lint.checks.derived import OUTCOME_ONLY
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold

TINY = 0.01
"""Spread of a group, as a share of the median spread of live groups, below which its differences are noise."""

RARE = 0.02
"""Share of live groups with a tiny spread up to which they hardly matter."""

TOKEN_LEVEL = re.compile(r"(process|step|turn|token)_?(level_?)?rewards?|\bprm\b|reward_shaping_per_token", re.I)
"""Keys that say that rewards come for steps, turns or tokens."""


def leave_one_out(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """NeMo-RL: leave-one-out baseline divided by the deviation of the others, which is 0 for the only one that
    differs.
    """
    baseline, scaled = "grpo.use_leave_one_out_baseline", "grpo.normalize_rewards"
    group = config.group
    if not (config.on(baseline) and config.on(scaled)) or not group:
        return
    rewards = known.run.groups.rewards if known.run is not None else np.empty(0)
    inexact = bool(np.any(rewards.astype(np.float32) * 1024 % 1))  # 0, ¼, 1 are held exactly, 0.35 is not
    yield Fault(
        "warning" if inexact else "note",
        "advantages can be far too large",
        f"if one rollout of {group} differs, its advantage is divided by the standard deviation of the other "
        f"{group - 1}, which is 0: this gave ±10⁶ before NeMo-RL #1519 (November 2025). Later versions do not divide "
        "the advantage of such a rollout, but rewards that float32 cannot hold exactly, such as 0.35, still gave "
        "advantages of 4,000 times their size in 2026"
        + (f"; {known.run.meta.name} has such rewards" if inexact and known.run is not None else ""),
        f"set {baseline} to false, or {scaled} to false",
        (baseline, scaled),
    )


def vanishing_spread(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """Groups with hardly any spread: divided by it, differences of noise weigh as much as those of right and wrong."""
    key = _scaled_by_group(config)
    if not key:
        return
    run = known.run
    if run is None or not len(run.groups) or len(set(run.groups.sizes.tolist())) != 1 or run.groups.sizes[0] < 2:
        several = config.reward_functions is not None and config.reward_functions > 1
        if several:
            group = config.group or 8
            yield Fault(
                "note",
                "small differences count as much as large ones",
                "advantages are divided by the standard deviation of their group: if the rewards of a group differ "
                "by only 0.01, that 0.01 counts as much as right versus wrong in another group (up to "
                f"{(group - 1) / group**0.5:.3g} for G = {group})",
                "check the standard deviations of an earlier run, divide by that of the batch, or do not divide",
                (key,),
            )
        return
    spread = run.groups.rewards.reshape(len(run.groups), -1).std(-1, ddof=1)
    live = spread[spread > 0]
    if not len(live):
        return
    share = float(np.mean(live < TINY * np.median(live)))
    if share > RARE:
        yield Fault(
            "warning",
            "noise is scaled up to full size",
            f"in {percent(share, 1)} of the live groups of {run.meta.name} rewards differ by less than "
            f"{TINY:.0%} of the usual difference; division by their standard deviation makes them count as much as the "
            "others",
            "round the rewards, drop the part that varies so little, or divide by the batch's standard deviation",
            (key,),
        )


def _scaled_by_group(config: TrainerConfig) -> str:
    """The key that says that advantages are divided by the deviation of their group; empty where they are not."""
    if config.dialect.name == "trl":
        scaled = config.get("scale_rewards") in ("group", True)
        summed = config.get("multi_objective_aggregation") == "sum_then_normalize"
        return "scale_rewards" if scaled and summed else ""
    key = "algorithm.norm_adv_by_std_in_grpo"
    estimator = config.get("algorithm.adv_estimator")
    return key if config.on(key) and estimator in ("grpo", "grpo_vectorized", "gdpo") else ""


def unnamed_estimator(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """verl trains PPO with a critic unless the estimator is named."""
    key, size = "algorithm.adv_estimator", "actor_rollout_ref.rollout.n"
    if not config.says(key) and config.get(key) == "gae" and (config.group or 1) > 1:
        yield Fault("failing", "this is PPO with a critic, not GRPO", f"{key} is not set, and its default is gae: a "
                      f"critic is trained, and the {config.group} rollouts of a prompt are not compared",
                      f"set {key}=grpo", (key, size))  # fmt: skip


def token_rewards(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """Rewards for steps or tokens, or discounts of them, beside an estimator that sums over the completion."""
    estimator = config.get("algorithm.adv_estimator")
    if estimator not in OUTCOME_ONLY:
        return
    keys = [key for key in config.given if TOKEN_LEVEL.search(key) and config.given[key] not in (None, False, 0)]
    change = "use optimal_token_baseline, reinforce_plus_plus, gae or, with grposcope installed, grposcope_steps"
    if keys:
        yield Fault(
            "warning",
            "token-level rewards are summed",
            f"estimator {estimator} sums token-level rewards over the completion and gives every token the "
            "same advantage, so their positions are lost",
            change,
            ("algorithm.adv_estimator", *keys),
        )
    idle = [k for k in ("algorithm.gamma", "algorithm.lam") if config.says(k) and config.number(k) not in (None, 1.0)]
    if idle:
        yield Fault("note", "a discount that has no effect", f"estimator {estimator} ignores {' and '.join(idle)}",
                      "leave it out, or " + change, tuple(idle))  # fmt: skip
