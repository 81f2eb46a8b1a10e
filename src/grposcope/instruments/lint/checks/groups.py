"""Groups too small to compare, and groups whose rewards will all be equal."""

from __future__ import annotations

import math
from collections.abc import Iterator

from grposcope.core.finding import Grade
from grposcope.core.text import percent
from grposcope.instruments.lint.checks.derived import group_relative, is_off
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold
from grposcope.maths import dead_groups
from grposcope.signs.dead_groups import DEAD

WASTED = 0.5
"""Share of dead groups from which most rollouts are wasted."""

KEYS = {
    "trl": "num_generations",
    "verl": "actor_rollout_ref.rollout.n",
    "nemo-rl": "grpo.num_generations_per_prompt",
    "grposcope": "group",
}
"""The key of the group size."""

LARGEST = 4096


def small_group(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """One rollout per prompt compares with nothing; two have advantages of one size whatever the rewards."""
    group, key = config.group, KEYS[config.dialect.name]
    if not group_relative(config):
        return
    if group is None:
        yield Untold(f"{key} is not known")
    elif group == 1:
        if config.dialect.name == "verl":
            yield Fault("warning", "groups of one rollout", "a rollout has nothing to compare with: verl sets the mean "
                          "of such a group to 0 and its standard deviation to 1, so the raw reward is the advantage, "
                          "and no baseline lowers its variance", f"set {key} to 4 or more", (key,))  # fmt: skip
            return
        consequence = "TRL refuses to start" if config.dialect.name == "trl" else "every advantage is 0"
        yield Fault("failing", "groups of one rollout", "a rollout is compared with the others of its group, but there "
                      f"are no others: {consequence}", f"set {key} to 4 or more", (key,))  # fmt: skip
    elif group == 2:
        yield Fault(
            "note",
            "groups of two rollouts",
            "a group has a gradient only if exactly one of the two succeeds, which happens at most half of the time; "
            "after division by the standard deviation its advantages are ±0.71, whatever the rewards are",
            f"set {key} to 4 or more, or do not divide by the standard deviation",
            (key,),
        )


def dead(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """The share of groups whose rewards will all be equal, at the success rate given or measured."""
    group, key = config.group, KEYS[config.dialect.name]
    if not group_relative(config) or group is None or group < 2:
        return
    share, basis = expected_dead(group, known)
    if share is None:
        yield Untold(basis)
        return
    if share < WASTED:
        return
    resampled = config.on("algorithm.filter_groups.enable") or config.on("grpo.use_dynamic_sampling")
    cost = f"1/(1 − {percent(share, 1)}) = {1 / (1 - share):.3g}" if share < 1 else "infinitely many"
    because = f"{percent(share, 1)} of groups of {group} will have equal rewards and no gradient ({basis})"
    better = larger_group(group, known)
    remedy = f"set {key} to {better} ({percent(expected_dead(better, known)[0] or 0)} dead), " if better else ""
    remedy += "use prompts of medium difficulty, or fine-tune on examples first"
    if resampled:
        yield Fault("warning" if share >= DEAD else "note", "replacing dead groups is expensive",
                      f"{because}; {cost} rollouts are drawn per rollout kept", remedy, (key,))  # fmt: skip
    else:
        grade: Grade = "failing" if share >= DEAD else "warning"
        yield Fault(grade, "most groups will be dead", because, remedy, (key,))


def expected_dead(group: int, known: Known) -> tuple[float | None, str]:
    """Expected share of dead groups and what it rests on; None with what would be needed."""
    if known.run is not None and len(known.run.groups):
        groups = known.run.groups
        if len(set(groups.sizes.tolist())) == 1 and groups.sizes[0] > 1:
            late = groups.rewards[: groups.offsets[-1]].reshape(len(groups), -1)
            share = dead_groups.expected(late, group)
            if math.isfinite(share.value):
                return share.value, f"from {len(groups):,} groups of {known.run.meta.name}, ± {percent(share.se, 1)}"
    if known.probe is not None and known.probe.folder is not None:
        share = dead_groups.expected(known.probe.read_gram().rewards, group)
        if math.isfinite(share.value):
            return share.value, f"from the {share.n} groups of the probe, ± {percent(share.se, 1)}"
    if known.success is not None:
        return dead_groups.chance(
            known.success, group
        ), f"if every prompt is solved {percent(known.success, 1)} of the time"
    return None, "the success rate is not known: give it, or a probe or an earlier run on the same task"


def larger_group(group: int, known: Known) -> int | None:
    """The smallest power of two, up to 16 times the group, at which fewer than half of the groups are dead."""
    size = 2
    while size <= min(16 * group, LARGEST):
        share = expected_dead(size, known)[0]
        if size > group and share is not None and share < WASTED:
            return size
        size *= 2
    return None


def no_variety(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """Greedy sampling: all rollouts of a prompt are the same text."""
    temperature = config.settings.get("temperature")
    if temperature == 0:
        key = {"trl": "temperature", "verl": "actor_rollout_ref.rollout.temperature",
               "nemo-rl": "policy.generation.temperature"}.get(config.dialect.name, "temperature")  # fmt: skip
        yield Fault("failing", "sampling is greedy", "at temperature 0 all rollouts of a prompt are the same text, so "
                      "every group is dead", f"set {key} to 1", (key,))  # fmt: skip
    sample = "actor_rollout_ref.rollout.do_sample"
    if config.dialect.name == "verl" and is_off(config, sample):
        yield Fault("failing", "sampling is greedy", "without sampling all rollouts of a prompt are the same text, so "
                      "every group is dead", f"leave {sample} at True", (sample,))  # fmt: skip
