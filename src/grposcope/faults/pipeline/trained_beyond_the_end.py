"""Tokens behind the end of a completion have a weight in the loss.

What it is
    Padding with a mask of ones, or an end that is appended to completions that have one.
How it shows
    The mask is 1 behind the first token that ends a completion. In a log: the shortest, mean and longest completion of
    every step are one number.
What it does to the gradient
    Tokens that were never drawn get a gradient: padding is learned or unlearned, and means over tokens are diluted.
What to do
    Cut the mask behind the first end, and append no second one.
What decides
    Tokens and mask of one rollout that ended: grposcope verify FOLDER.
Sources
    MemGen #33, ends in place of padding: https://github.com/bingreeky/MemGen/pull/33
    method of this project"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.text import number
from grposcope.signs.quantities import NO_SPREAD, SHORT, Quantities
from grposcope.signs.rollouts.claims import tokens

CUT = 0.5
"""Mean share of completions at the limit above which these are as long for that reason."""

WIDTHS = 3
"""Different lengths over the steps, at least: one alone may be a limit."""

MASK = (
    "sum the mask of each rollout of one batch: where all sums are the width of the batch, cut the mask behind the "
    "first end, and fill with the padding token that the mask is made from (an end token in its place counts as text)"
)


def _check(quantities: Quantities) -> Finding:
    """The shortest completion of every step is its longest, though steps differ and completions are not cut.

    Completions that end by themselves have lengths of their own; where they are one number at every step, and another
    from step to step, what is counted is the width of the batch.
    """
    least, most = quantities.require("length_min", SHORT), quantities.require("length_max", SHORT)
    if len(least) != len(most) or not np.array_equal(least.values, most.values):
        return fact(False, "completions of a step differ in length")
    cut = quantities.column("truncated")
    share = None if cut is None else float(cut.values.mean())
    if len(np.unique(most.values)) < WIDTHS or (share or 0) > CUT or not _are_several(quantities):
        return fact(False, "completions of a step are as long as each other, as one alone or cut ones are")
    low, high = number(float(most.values.min())), number(float(most.values.max()))
    brief = f"all completions of a step have one length in all {len(most)} {most.rows}"
    of_limit = "" if share is None else f" ({share:.0%} are cut at the limit)"
    because = f"{brief}, {low} to {high} tokens{of_limit}: what is counted is the width of the batch"
    evidence = (Sign("longest less shortest completion, largest", 0.0, column=most.name),)
    return fact(True, because, evidence, brief=brief, remedy=MASK)


def _are_several(quantities: Quantities) -> bool:
    """Whether rewards of a step differ, so that it has more than one rollout."""
    spreads = (quantities.get(name, 1) for name in ("reward_std", "component_std"))
    return any(spread is not None and float(np.median(spread.values)) > NO_SPREAD for spread in spreads)


FAULT = Fault(
    name="trained beyond the end",
    rank=5.0,
    remedy="cut the mask behind the first token that ends the completion",
    beside="warning",
    log=LogTest(
        "trained beyond the end",
        _check,
        needs=("length_min", "length_max"),
        where_logged=True,
        statistic="shortest and longest completion of every step",
        threshold=f"equal in every row of at least {SHORT}, at {WIDTHS} lengths or more, most completions not cut",
    ),
    rollouts=(tokens.PROOF,),
)
