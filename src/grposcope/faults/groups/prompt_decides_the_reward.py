"""Rewards differ from prompt to prompt and never within a group.

Asked as
    The std of my reward function is 5, but reward_std and the loss are 0
What it is
    All answers to a prompt earn the same: they are copies of one another (greedy sampling, one seed), the reward reads
    the prompt or the label and not the answer, or each prompt is always solved or never. Trainers log the spread of a
    reward function over the whole batch, so that it shows the difference of prompts.
How it shows
    Every group has equal rewards in nearly every row, while a reward function spreads over the batch.
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
"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import number
from grposcope.signs.quantities import LEAST, NO_SPREAD, MetricSeries, Quantities

DEAD = 0.99
"""Share of dead groups that is all of them."""

ROWS = 0.9
"""Share of rows in which all groups are dead, and in which the reward spreads over the batch."""

FOLLOWS = ("starved", "saturated", "empty steps", "zero loss", "no learning")


def check(quantities: Quantities) -> Finding:
    """All groups dead in ROWS of the rows, and a component that spreads over the batch in ROWS of them."""
    dead = quantities.dead_fraction
    if dead is None or quantities.dead_fraction_is_bound or len(dead) < LEAST or dead.values.max() > 1:
        return cannot_tell("the share of dead groups is not logged", "dead_fraction")
    if np.mean(dead.values >= DEAD) < ROWS:
        return fact(False, "some groups have different rewards")
    spread = _widest(quantities)
    if spread is None:
        return fact(False, "no reward function spreads over the batch")
    size, key = number(float(np.median(spread.values))), quantities.key(spread.name)
    because = (
        f"rewards within every group are equal in {int((dead.values >= DEAD).sum())} of {len(dead)} {dead.rows}, while "
        f"{key} is {size} over the batch: all answers to a prompt are paid alike, at levels that differ between prompts"
    )
    evidence = (Sign("median spread over the batch", float(np.median(spread.values)), column=spread.name),)
    return fact(True, because, evidence, explains=FOLLOWS, brief=f"rewards differ by prompt ({key} {size}), not within")


def _widest(quantities: Quantities) -> MetricSeries | None:
    """The component with the widest spread over the batch, of those that spread in ROWS of the rows."""
    spreads = quantities.components("component_std").values()
    wide = [one for one in spreads if np.mean(one.values > NO_SPREAD) >= ROWS]
    return max(wide, key=lambda one: float(np.median(one.values)), default=None)


FAULT = Fault(
    name="prompt decides the reward",
    rank=90,
    remedy="read two completions of one prompt: where they are alike, raise the temperature and see that each rollout "
    "has a seed of its own; where they differ, see whether the reward reads the prompt and not the answer, or take "
    "prompts that are solved sometimes",
    beside="warning",
    log=LogTest(
        "prompt decides the reward",
        check,
        needs=("dead_fraction", "components"),
        where_logged=True,
        statistic="share of rows with all groups dead; spread of each reward function over the batch",
        threshold=f"{ROWS:g} of the rows with {DEAD:g} of the groups dead and a spread above {NO_SPREAD:g}, a fact",
    ),
)
