"""Rewards differ from prompt to prompt and never within a group.

Asked as
    The std of my reward function is 5, but reward_std and the loss are 0
What it is
    All answers to a prompt earn the same: they are copies of one another (greedy sampling, one seed), the reward reads
    the prompt or the label and not the answer, or each prompt is always solved or never. Trainers log the spread of a
    reward function over the whole batch, so that it shows the difference of prompts.
How it shows
    Every group has equal rewards in nearly every row, or every advantage is 0, while rewards spread over the batch.
What it does to the gradient
    There is none: the baseline of a group takes away what its rollouts share. No weight of the component can help.
What to do
    Raise the temperature where the texts of a group are alike; where they differ, mend the reward function or take
    prompts that are solved sometimes.
What decides
    Two completions of one prompt, read beside their rewards: grposcope texts FOLDER with the rollouts.
Sources
    TRL #3857: https://github.com/huggingface/trl/issues/3857
    ms-swift #4570: https://github.com/modelscope/ms-swift/issues/4570
    ROLL #397, groups of the steps of one trajectory: https://github.com/alibaba/ROLL/issues/397
"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import apart, number
from grposcope.signs.equal_groups import ALL, EqualRows, all_equal_since, equal_rows
from grposcope.signs.quantities import LEAST, NO_SPREAD, MetricSeries, Quantities

ROWS = 0.9
"""Share of rows in which all groups are dead, and in which the reward spreads over the batch."""

RANGE, OF_GROUPS = "the largest less the least reward", "the best paid group less the worst"
"""Spreads over the batch that are worked out of others."""

COUNT = (
    "count the trajectories that are compared with one another: where it is 1, draw 4 or more of a prompt and group "
    "them by it; else read two completions of one prompt beside their rewards"
)
"""What to do where groups of one rollout would look the same."""

OF_BATCH = ("reward_std_batch", "reward_std_unclear", "reward_min", "reward_max")
"""Columns that say whether rewards spread over the batch."""

PAID = 0.05
"""Mean reward from which, and up to 1 less that, groups that are all alike are paid some and others not."""

_ALIKE = 0.15
"""By how much a spread may be larger or smaller than that of a batch of rewards of 0 and 1 with its mean."""

FOLLOWS = ("lost gradient", "starved", "saturated", "empty steps", "zero loss", "no learning")


def _check(quantities: Quantities) -> Finding:
    """All groups dead in ROWS of the rows, and rewards that spread over the batch in ROWS of them."""
    equal = equal_rows(quantities)
    if equal is None:
        return cannot_tell("the share of dead groups is not logged", "dead_fraction")
    if equal.share < ROWS:
        since = all_equal_since(quantities)
        return fact(False, "some groups have different rewards") if since is None else _since(quantities, since)
    spread, reward = _widest(quantities), quantities.get("reward", LEAST)
    if spread is None:
        logged = [name for name in OF_BATCH if name in quantities.run.table]
        untold = not logged and not quantities.components("component_std")
        if equal.share == 1 and untold:
            return _by_rows(equal, reward)
        return fact(False, "no reward spreads over the batch")
    if reward is not None and spread.name.startswith("component_std/") and np.ptp(reward.values) == 0:
        return fact(False, "the reward is the same in every row, so that no prompt is paid more than another")
    size, what = number(float(np.median(spread.values))), _named(quantities, spread)
    evidence = (Sign("median spread over the batch", float(np.median(spread.values)), column=spread.name),)
    if not equal.compared and (quantities.group_size or 1) == 1:
        because = (
            f"{equal.because}, while {what} is {size} over the batch: a group holds one rollout, or the rows of one "
            "trajectory, or all answers to a prompt are paid alike"
        )
        brief = f"every advantage is 0 although rewards differ ({what} {size})"
        return fact(True, because, evidence, explains=FOLLOWS, brief=brief, remedy=COUNT)
    because = (
        f"{equal.because}, while {what} is {size} over the batch: all answers to a prompt are paid alike, at levels "
        "that differ between prompts"
    )
    return fact(
        True, because, evidence, explains=FOLLOWS, brief=f"rewards differ by prompt ({what} {size}), not within"
    )


def _by_rows(equal: EqualRows, reward: MetricSeries | None) -> Finding:
    """Groups that are all dead in every row, of a reward that is neither none nor all and differs from row to row."""
    low, high = (0.0, 0.0) if reward is None else (float(reward.values.min()), float(reward.values.max()))
    if reward is None or low < PAID * max(high, 1.0) or high == low or (high <= 1 and high > 1 - PAID):
        return fact(False, "no reward spreads over the batch")
    paid = " to ".join(apart(low, high))
    because = (
        f"{equal.because}, while the mean reward is {paid} from row to row: a group holds one rollout, or all answers "
        "to a prompt are paid alike"
    )
    evidence = (Sign(f"largest less least {reward.name}", high - low, column=reward.name),)
    brief = f"groups never differ, at rewards of {paid}"
    return fact(True, because, evidence, explains=FOLLOWS, brief=brief, remedy=COUNT)


def _since(quantities: Quantities, step: float) -> Finding:
    """Groups that are all dead from a step on, at once, and rewards that spread over the batch all the same."""
    spread = _widest(quantities)
    values = np.empty(0) if spread is None else spread.values[spread.steps >= step]
    if spread is None or not len(values) or np.mean(values > NO_SPREAD) < ROWS:
        return fact(False, "all groups are dead since a step, and no reward spreads over the batch")
    size, what = number(float(np.median(values))), _named(quantities, spread)
    brief = f"since step {step:,.0f} rewards differ by prompt ({what} {size}), not within"
    because = (
        f"all groups have equal rewards in every row since step {step:,.0f}, while {what} is {size} over the batch: "
        "answers to a prompt are paid alike, at levels that differ between prompts"
    )
    evidence = (Sign("median spread over the batch", float(np.median(values)), column=spread.name),)
    return fact(True, because, evidence, int(step), explains=(*FOLLOWS, "dead after a fall"), brief=brief)


def _widest(quantities: Quantities) -> MetricSeries | None:
    """The widest spread of rewards over the batch of those that are there in ROWS of the rows: of components; else of
    the reward, which TRL logs, its largest less its least, or what the groups of a step are paid."""
    spreads = list(quantities.components("component_std").values())
    names = ("reward_std_batch", "reward_std_unclear", *(["reward_std"] if _is_of_batch(quantities) else []))
    for name in names:  # within dead groups there is no spread
        spreads += [series] if (series := quantities.column(name)) is not None and len(series) >= LEAST else []
    spreads += [made for made in (_range(quantities), _of_groups(quantities)) if made is not None]
    wide = [spread for spread in spreads if np.mean(spread.values > NO_SPREAD) >= ROWS]
    parts = [spread for spread in wide if spread.name.startswith("component_std/")]
    return max(parts or wide[:1], key=lambda spread: float(np.median(spread.values)), default=None)


def _is_of_batch(quantities: Quantities) -> bool:
    """Whether the logged spread within groups is that of whole batches of rewards of 0 and 1, by its size."""
    reward, spread = quantities.column("reward"), quantities.column("reward_std")
    if reward is None or spread is None or len(reward) != len(spread) or reward.values.min() < 0:
        return False
    mixed = (reward.values > 0) & (reward.values < 1)
    if reward.values.max() > 1 or not mixed.any():
        return False
    whole = np.sqrt(reward.values[mixed] * (1 - reward.values[mixed]))
    return bool(abs(np.median(spread.values[mixed] / whole) - 1) < _ALIKE)


def _range(quantities: Quantities) -> MetricSeries | None:
    """The largest less the least reward of each batch; None where they are not logged."""
    least, most = quantities.run.table.get("reward_min"), quantities.run.table.get("reward_max")
    if least is None or most is None:
        return None
    there = np.isfinite(least) & np.isfinite(most)
    steps = quantities.run.table["step"][there]
    return MetricSeries(RANGE, steps, (most - least)[there]) if there.sum() >= LEAST else None


def _of_groups(quantities: Quantities) -> MetricSeries | None:
    """What the best paid group of each step has more than the worst, by its first reward; None without groups."""
    groups = quantities.run.groups
    sizes = np.diff(groups.offsets)
    if not (sizes > 0).any():
        return None
    first, steps = groups.rewards[groups.offsets[:-1][sizes > 0]], groups.step[sizes > 0]  # equal within each group
    order = np.argsort(steps, kind="stable")
    each, begins = np.unique(steps[order], return_index=True)
    widths = np.maximum.reduceat(first[order], begins) - np.minimum.reduceat(first[order], begins)
    return MetricSeries(OF_GROUPS, each.astype(np.float64), widths) if len(each) >= LEAST else None


def _named(quantities: Quantities, spread: MetricSeries) -> str:
    """What a spread is, by the key of the log where it has one."""
    return spread.name if spread.name in (RANGE, OF_GROUPS) else quantities.key(spread.name)


FAULT = Fault(
    name="prompt decides the reward",
    rank=90,
    remedy="read two completions of one prompt: where they are alike, raise the temperature and see that each rollout "
    "has a seed of its own; where they differ, see whether the reward reads the prompt and not the answer, or take "
    "prompts that are solved sometimes",
    beside="warning",
    log=LogTest(
        "prompt decides the reward",
        _check,
        needs=("dead_fraction",),
        where_logged=True,
        statistic="share of rows with all groups dead; spread of the rewards, or of a reward function, over the batch",
        threshold=f"{ROWS:g} of the rows with {ALL:g} of the groups dead and a spread above {NO_SPREAD:g}, a fact",
    ),
)
