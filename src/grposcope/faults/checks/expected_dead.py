"""The check of settings for groups that will be dead: starved where most rollouts fail, saturated where not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from grposcope.core.fault import SettingsCheck
from grposcope.core.finding import Finding, Grade, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import percent
from grposcope.faults.known_task import Known
from grposcope.maths import dead_groups
from grposcope.signs.dead_groups import DEAD
from grposcope.signs.settings.names import EVERY, group_size, key_of
from grposcope.signs.settings.recipe import group_relative

WASTED = 0.5
"""Share of dead groups from which most rollouts are wasted."""

LARGEST = 4096
"""Largest group that is proposed."""


class _DeadShare(NamedTuple):
    """Expected share of dead groups, what it rests on, and whether most of their rollouts succeed; share None: `basis`
    says what would be needed."""

    share: float | None
    basis: str
    solved: bool = False


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The share of groups whose rewards will all be equal, at the success rate given or measured."""
    group, key = group_size(config), key_of(config, "group")
    if not group_relative(config) or group is None or group < 2:
        return
    share, basis, solved = expected(group, facts)
    if share is None:
        yield cannot_tell(basis, "success rate")
        return
    because = f"{percent(share, 1)} of groups of {group} will have equal rewards and no gradient ({basis})"
    if share < WASTED:
        yield fact(False, because)
        return
    filtered = config.on("algorithm.filter_groups.enable") or config.on("grpo.use_dynamic_sampling")
    better = None if filtered else larger_group(group, facts)  # dropped groups cost rollouts, and no gradient
    remedy = f"set {key} to {better} ({percent(expected(better, facts).share or 0)} dead), " if better else ""
    remedy += "use harder prompts, or filter out solved ones" if solved else (
        "use prompts of medium difficulty, or fine-tune on examples first"
    )  # fmt: skip
    grade: Grade = "failing" if share >= DEAD else "warning"
    brief = "most groups will be dead"
    if filtered:
        cost = f"1/(1 − {percent(share, 1)}) = {1 / (1 - share):.3g}" if share < 1 else "infinitely many"
        because = f"{because}; {cost} rollouts are drawn per rollout kept"
        grade, brief = "warning" if share >= DEAD else "note", "replacing dead groups is expensive"
    yield fact(True, because, config.signs(key), fault="saturated" if solved else "starved", grade=grade, brief=brief,
               remedy=remedy)  # fmt: skip


def expected(group: int, facts: Known) -> _DeadShare:
    """The share of dead groups of this size: of an earlier run, else of a probe, else at a success rate."""
    if facts.run is not None and len(facts.run.groups):
        groups = facts.run.groups
        if len(set(groups.sizes.tolist())) == 1 and groups.sizes[0] > 1:
            rewards = groups.rewards[: groups.offsets[-1]].reshape(len(groups), -1)
            share = dead_groups.expected(rewards, group)
            if math.isfinite(share.value):
                basis = f"from {len(groups):,} groups of {facts.run.meta.name}, ± {percent(share.se, 1)}"
                return _DeadShare(share.value, basis, _high(rewards))
    if facts.probe is not None and facts.probe.folder is not None:
        rewards = facts.probe.read_gram().rewards
        share = dead_groups.expected(rewards, group)
        if math.isfinite(share.value):
            basis = f"from the {share.n} groups of the probe, ± {percent(share.se, 1)}"
            return _DeadShare(share.value, basis, _high(rewards))
    if facts.success is not None:
        basis = f"if every prompt is solved {percent(facts.success, 1)} of the time"
        return _DeadShare(dead_groups.chance(facts.success, group), basis, facts.success > 0.5)
    return _DeadShare(None, "the success rate is not known: give it, or a probe or an earlier run on the same task")


def larger_group(group: int, facts: Known) -> int | None:
    """The smallest power of two, up to 16 times the group, at which fewer than half of the groups are dead."""
    size = 2
    while size <= min(16 * group, LARGEST):
        share = expected(size, facts).share
        if size > group and share is not None and share < WASTED:
            return size
        size *= 2
    return None


def _high(rewards: np.ndarray) -> bool:
    """Whether the mean reward is above the middle of the range of rewards."""
    return bool(np.nanmean(rewards) > (np.nanmin(rewards) + np.nanmax(rewards)) / 2)


CHECK = SettingsCheck(
    "starved",
    _settings,
    EVERY,
    "groups whose rewards will all be equal, at the success rate given or measured",
    ("failing", "warning", "note"),
    "p^G + (1 − p)^G, arXiv:2503.14476 §3.2; grposcope.maths.dead_groups",
)
"""Tells starved and saturated apart."""
