"""From one step to the next every completion runs to the token limit, and nothing is paid any more.

Asked as
    The model answers only "!!!!!!"
What it is
    The sampler draws one token over and over, or noise: its weights were damaged by a transfer, by another precision or
    by an update that was not finite; or its engine fails. A policy that learns to write more does so over many updates.
How it shows
    The share of cut completions goes from few to all within two rows and stays there, and the reward goes to one number
    in the same rows.
What it does to the gradient
    All rewards are equal, so that there is none.
What to do
    Read one completion of that step. If the trainer's own weights write sense, mend what is sent to the sampler;
    otherwise go back to the checkpoint before. A longer limit does not help.
What decides
    One prompt, greedily, from the checkpoint of that step in another engine (transformers): sense, or the same text.
Sources
    ms-swift #3372: https://github.com/modelscope/ms-swift/issues/3372
"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, fact
from grposcope.signs.quantities import LEAST, SHORT, Quantities

FEW, ALL = 0.5, 0.99
"""Share of cut completions in the row before, at most, and in every row after."""

WITHIN = 2
"""Rows within which it happens."""

FOLLOWS = (
    "length", "constant reward", "starved", "dead after a fall", "never paid", "empty steps", "zero loss",
    "reward decline", "saturated", "unseen truncation",
)  # fmt: skip
"""Faults that follow from text that ends nowhere."""


def check(quantities: Quantities) -> Finding:
    """Cut completions that go from few to all within WITHIN rows, up to the end, with a reward that is then one."""
    cut, reward = quantities.require("truncated", LEAST), quantities.require("reward", LEAST)
    whole = int(np.argmin(np.append(cut.values[::-1] >= ALL, False)))
    first = len(cut) - whole
    if whole < SHORT or not first > 0 or cut.values[max(first - WITHIN, 0) : first].min() > FEW:
        return fact(False, "completions do not all run to the limit from one step to the next")
    step = int(cut.steps[first])
    after = reward.values[reward.steps >= cut.steps[min(first + WITHIN, len(cut) - 1)]]
    before = reward.values[reward.steps < cut.steps[first]]
    if not len(after) or np.ptp(after) > 0 or not len(before) or after[0] >= before.mean():
        return fact(False, "all completions run to the limit, and rewards still differ")
    share = float(cut.values[:first].mean())
    because = (
        f"completions at the token limit go from {share:.0%} to all at step {step:,} and the reward to {after[0]:g} "
        "with them, which no learning does in one step: the text has degenerated, as when the sampler repeats one token"
    )
    evidence = (
        Sign("cut completions before", share, column=cut.name),
        Sign("rows up to the end with all cut", float(whole), column=cut.name),
    )
    return fact(
        True, because, evidence, step, explains=FOLLOWS, brief=f"all completions run to the limit from step {step:,} on"
    )


FAULT = Fault(
    name="degenerate output",
    rank=15,
    remedy="read a completion of that step: if the sampler repeats one token or writes gibberish, compare its weights "
    "with the trainer's after one update, and go back to the checkpoint before the onset",
    effect="nothing can be learned",
    beside="failing",
    log=LogTest(
        "degenerate output",
        check,
        needs=("truncated", "reward"),
        statistic="rows from few cut completions to all of them; the reward after them",
        threshold=f"below {FEW:g} to {ALL:g} within {WITHIN} rows, up to the end, with one reward",
    ),
)
