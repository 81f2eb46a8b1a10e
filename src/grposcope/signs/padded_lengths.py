"""Completions that are all as long as each other in every step, whatever that length is: padding is counted.

Completions of a batch that end by themselves have lengths of their own; where the shortest, the mean and the longest
are one number at every step, and that number changes from step to step, what is counted is the width of the batch.
"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.text import number
from grposcope.signs.quantities import NO_SPREAD, SHORT, Quantities

PADDED = "trained beyond the end"

CUT = 0.5
"""Mean share of completions at the limit above which these are as long for that reason."""

WIDTHS = 3
"""Different lengths over the steps, at least: one alone may be a limit."""

MASK = (
    "sum the mask of each rollout of one batch: where all sums are the width of the batch, cut the mask behind the "
    "first end, and fill with the padding token that the mask is made from (an end token in its place counts as text)"
)


def check(quantities: Quantities) -> Finding:
    """The shortest completion of every step is its longest, though steps differ and completions are not cut."""
    least, most = quantities.require("length_min", SHORT), quantities.require("length_max", SHORT)
    if len(least) != len(most) or not np.array_equal(least.values, most.values):
        return fact(False, "completions of a step differ in length")
    if len(np.unique(most.values)) < WIDTHS or _are_cut(quantities) or not _are_several(quantities):
        return fact(False, "completions of a step are as long as each other, as one alone or cut ones are")
    low, high = number(float(most.values.min())), number(float(most.values.max()))
    brief = f"all completions of a step have one length in all {len(most)} {most.rows}"
    because = f"{brief}, {low} to {high} tokens, though hardly any is cut: what is counted is the width of the batch"
    evidence = (Sign("longest less shortest completion, largest", 0.0, column=most.name),)
    return fact(True, because, evidence, brief=brief, remedy=MASK)


def _are_cut(quantities: Quantities) -> bool:
    """Whether most completions end at the limit, where this is logged."""
    cut = quantities.column("truncated")
    return cut is not None and float(cut.values.mean()) > CUT


def _are_several(quantities: Quantities) -> bool:
    """Whether rewards of a step differ, so that it has more than one rollout."""
    spreads = (quantities.get(name, 1) for name in ("reward_std", "component_std"))
    return any(spread is not None and float(np.median(spread.values)) > NO_SPREAD for spread in spreads)


TEST = LogTest(
    PADDED,
    check,
    needs=("length_min", "length_max"),
    where_logged=True,
    statistic="shortest and longest completion of every step",
    threshold=f"equal in every row of at least {SHORT}, at {WIDTHS} lengths or more, of completions that are not cut",
)
