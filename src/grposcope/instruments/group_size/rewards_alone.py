"""What the rewards of a run say of each group size without gradients: dead groups, but not the best size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grposcope.core.answer import Answer, Table
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.run import Floats, Run
from grposcope.core.text import number, percent, visible
from grposcope.instruments.group_size import GROUP_SIZE, PlanSettings
from grposcope.instruments.group_size.planning import GROUPS
from grposcope.instruments.group_size.size import KINDS
from grposcope.logs.trainers import how_to_log
from grposcope.maths import confidence, dead_groups, moments
from grposcope.maths.dead_groups import expected
from grposcope.signs import standardizing

HALF = 0.5
"""Share of groups in which a reward may be constant at the size that is said to be enough for it."""

_MANY, _NEARLY_ALL = 10, 0.9
"""Groups whose rewards differ, at least, and the share of them that repeat at one distance, from which on it is said:
of independent groups of 4 one in seven does."""

_STANDARDIZED = ("standardized", "dead groups replaced")
"""Comparisons whose best group size a probe tells for rewards of two values only."""

MOST = 256
"""Most prompts that are proposed for a probe."""


@dataclass(frozen=True)
class _RewardPoint:
    """One group size from rewards alone: share of dead groups, live groups per rollout, rollouts drawn per kept one."""

    group: int
    dead: Estimate
    live_per_rollout: Estimate
    draws: Estimate


@dataclass(frozen=True)
class _SizesFromRewards:
    """Group sizes as the rewards of a run alone show them: dead groups, but not the best size.

    groups: how many groups; steps: the first and last of them; reward: their mean; success: their success rate, None
    for rewards other than 0 and 1; values: how many different rewards there are; curve: a point per group size.
    """

    groups: int
    steps: tuple[int, int]
    reward: float
    success: float | None
    values: int
    curve: tuple[_RewardPoint, ...]

    unknown = ("sigma1", "delta", "prompt_variance", "mse", "best group")
    """What takes gradients, and so a probe."""

    def sentence(self) -> str:
        """Statement that the group size cannot be told, with the reason."""
        which = ", for some recipes" if self.values > 2 else ""
        return (
            "Cannot tell the best group size from rewards alone: it depends on the gradients of single rollouts, "
            f"which a probe of the model measures{which}."
        )

    def decides(self, recipe: str) -> list[str]:
        """What a probe decides of rewards of more than two values, and what it does not; nothing for two values.

        recipe: that of the run, empty where it is not known.
        """
        if self.values <= 2:
            return []
        own = f", recipe {visible(recipe, 40)} of this run among them" if KINDS.get(recipe) in _STANDARDIZED else ""
        return [
            f"What a probe decides here, with {self.values:,} different rewards: the best group size for advantages "
            "that are the reward less a mean (rloo, dr_grpo; TRL: scale_rewards=False). It cannot decide it for "
            f"advantages that are divided by the group's standard deviation (grpo, gspo, cispo, dapo{own}), however "
            "large it is: their error is known for rewards of two values only. For these compare short runs of two "
            "sizes at an equal number of rollouts; the table below holds for every recipe."
        ]


def _of_rewards(rewards: Floats, steps: tuple[int, int], groups: Sequence[int] = GROUPS) -> _SizesFromRewards:
    """The facts of rewards (P, n) of the groups of these steps, NaN where a group has no such rollout."""
    curve = tuple(
        _RewardPoint(
            group,
            dead_groups.expected(rewards, group),
            dead_groups.live_per_rollout(rewards, group),
            _resampling_cost(rewards, group),
        )
        for group in groups
    )
    values = len(np.unique(rewards[np.isfinite(rewards)]))
    return _SizesFromRewards(len(rewards), steps, float(np.nanmean(rewards)), success_rate(rewards), values, curve)


def answer(run: Run, settings: PlanSettings) -> Answer:
    """Dead groups at each size from the last steps of a run; UserError where these hold nothing to plan for."""
    if (rate := _logged_rate(run, settings.last)) is not None:
        return _of_rate(run, rate, settings)
    logged, (first, last) = _last_groups(run, settings.last)
    if not any(len(set(group)) > 1 for group in logged):
        raise UserError(
            f"{run.meta.source}: all rewards are equal within every group of steps {first} to {last}, so there is no "
            "gradient to plan for; look at more of the last steps, or train on problems the model solves sometimes"
        )
    facts = _of_rewards(_rows(logged), (first, last), settings.groups)
    return Answer(
        GROUP_SIZE.name,
        GROUP_SIZE.question,
        "cannot tell",
        facts.sentence(),
        text=[
            f"{facts.groups:,} groups of steps {first:,} to {last:,}, mean reward {facts.reward:.3f}.",
            *facts.decides(str(run.setting("recipe") or "")),
            *_copies(logged),
            *standardized_text(facts.success, max(map(len, logged))),
        ],
        tables=[_sizes(facts.curve), *standardized_table(facts.success, settings.groups)],
        document={
            "kind": "run", "groups": facts.groups, "values": facts.values, "steps": facts.steps, "curve": facts.curve,
            "plan": None, "cannot_tell": facts.unknown,
        },
    )  # fmt: skip


def _copies(groups: Sequence[Sequence[float]]) -> list[str]:
    """That rewards repeat at one distance in nearly all of many groups whose rewards differ, as those of copies do."""
    live = [list(group) for group in groups if len(set(group)) > 1]
    for apart in range(2, max(map(len, live), default=0) // 2 + 1):
        repeat = sum(len(group) >= 2 * apart and group[apart:] == group[:-apart] for group in live)
        if len(live) >= _MANY and repeat >= _NEARLY_ALL * len(live):
            return [
                f"In {repeat:,} of the {len(live):,} groups whose rewards differ they repeat every {apart} places, as "
                "those of copied rollouts do: the shares below take rollouts for independent draws, and are too high "
                "for larger groups if half or more are copies; grposcope verify on the rollouts shows whether they are."
            ]
    return []


def _logged_rate(run: Run, last: int) -> float | None:
    """Mean reward of the last steps of a run that logs no single rewards, where it can be a success rate; else None."""
    logged = run.table.get("reward", np.empty(0))
    logged = logged[np.isfinite(logged)]
    if len(run.groups) or not len(logged) or logged.min() < 0 or logged.max() > 1:
        return None
    return float(logged[-last:].mean())


def _of_rate(run: Run, rate: float, settings: PlanSettings) -> Answer:
    """What a mean reward within [0, 1] says: what standardizing weighs, if rewards are 0 and 1."""
    used = run.setting("group")
    table = standardized_table(rate, settings.groups)
    return Answer(
        GROUP_SIZE.name,
        GROUP_SIZE.question,
        "cannot tell",
        "Cannot tell the best group size: the rewards of single rollouts were not recorded.",
        text=[
            f"Mean reward {rate:.3f}. What follows holds if single rewards are 0 or 1.",
            *standardized_text(rate, used if isinstance(used, int) else 0),
        ],
        tables=table,
        missing=[
            f"Dead groups at each size need the rewards of single rollouts; {how_to_log('groups', run.meta.engine)}"
        ],
        document={
            "kind": "rate", "success": rate, "group": used, "plan": None, "cannot_tell": _SizesFromRewards.unknown
        },
    )  # fmt: skip


def prompts_to_probe(run: Run, last: int) -> int:
    """Prompts of a probe whose groups are like the last ones of a run, so that it most likely decides.

    Half as many again as would have enough informative groups on average, in multiples of eight; 32 where no share of
    informative groups is known.
    """
    groups, _ = _last_groups(run, last)
    rewards = _rows(groups)
    share = float(moments.informative(np.nan_to_num(rewards), ~np.isnan(rewards)).mean())
    return 32 if share == 0 else int(min(MOST, 8 * math.ceil(1.5 * confidence.LEAST_INFORMATIVE / share / 8)))


def _rows(groups: Sequence[Sequence[float]]) -> Floats:
    """Rewards (P, n) of these groups, NaN where a group has no such rollout."""
    rewards = np.full((len(groups), max(map(len, groups))), math.nan)
    for row, group in zip(rewards, groups, strict=True):
        row[: len(group)] = group
    return rewards


SUCCESSES = (0.01, 0.05, 0.1, 0.2, 0.35)
"""Success rates of the table of what standardizing weighs."""


def success_rate(rewards: Floats) -> float | None:
    """Mean of rewards (P, n), NaN for absent ones, that are all 0 or 1; None for others."""
    logged = rewards[~np.isnan(rewards)]
    return float(logged.mean()) if len(logged) and np.isin(logged, (0.0, 1.0)).all() else None


def standardized_text(success: float | None, group: int) -> list[str]:
    """What division by the group's deviation does at this group size; nothing for rewards other than 0 and 1."""
    if success is None or group < 2:
        return []
    said = standardizing.effect(group, success if 0.005 <= success <= 0.995 else None)
    return [f"Standardized advantages: {said}."]


def standardized_table(success: float | None, groups: Sequence[int]) -> list[Table]:
    """w_G(p)/w_G(½) at each group size; nothing for rewards other than 0 and 1."""
    if success is None:
        return []
    header = ("G", *(f"p = {percent(p)}" for p in SUCCESSES))
    return [Table(
        "What standardizing weighs at each group size", header, standardizing.rows(groups, SUCCESSES),
        "How many times as much a prompt of success rate p (or 1 − p) counts as one that is solved half of the time, "
        "after division by the group's standard deviation; 1 for leave-one-out advantages.", folded=True,
    )]  # fmt: skip


def _sizes(curve: Sequence[_RewardPoint]) -> Table:
    """A row per group size."""
    rows = []
    for point in curve:
        dead, live = point.dead, point.live_per_rollout
        if math.isfinite(dead.value):
            cells = (f"{dead.value:.1%} ± {dead.se:.1%}", f"{1000 * live.value:.1f} ± {1000 * live.se:.1f}")
            rows.append((str(point.group), *cells, number(point.draws.value), dead.flag))
        else:
            rows.append((str(point.group), "cannot tell", "cannot tell", "cannot tell", dead.flag))
    header = ("G", "dead groups", "live groups per 1,000 rollouts", "groups drawn per live group", "")
    return Table("What each group size would give", header, rows)


def _resampling_cost(rewards: ArrayLike, group: int) -> Estimate:
    """Rollouts drawn per rollout kept when dead groups are replaced (DAPO), 1/(1 − dead); infinite if all are dead."""
    dead = expected(rewards, group)
    if not dead.value < 1:
        value = math.nan if math.isnan(dead.value) else math.inf
        return Estimate(value, math.nan, dead.n, dead.flag or "every group is dead")
    return Estimate(1 / (1 - dead.value), dead.se / (1 - dead.value) ** 2, dead.n, dead.flag)


def _last_groups(run: Run, last: int) -> tuple[list[list[float]], tuple[int, int]]:
    """Rewards of the groups of the last steps of a run, and the first and last of these steps."""
    groups = run.groups
    if not len(groups):
        if not run.steps:
            raise UserError(f"{run.meta.source} holds no groups yet; wait for its first step")
        how = how_to_log("groups", run.meta.engine)
        raise UserError(f"{run.meta.source}: the rewards of single rollouts were not recorded; to record them, {how}")
    end = int(groups.step.max())
    kept = np.flatnonzero(groups.step > end - last)
    rewards = [groups.rewards[groups.offsets[k] : groups.offsets[k + 1]] for k in kept]
    bad = next((k for k, reward in zip(kept, rewards, strict=True) if not np.isfinite(reward).all()), None)
    if bad is not None:
        raise UserError(
            f"{run.meta.source}: a reward of step {groups.step[bad]} is not finite; grade it again or remove the group"
        )
    steps = int(groups.step[kept].min()), end
    return [reward.tolist() for reward in rewards], steps
