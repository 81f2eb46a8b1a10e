"""Whether the rewards of a step differ, so that a gradient is due: within groups, or only known of the batch."""

from __future__ import annotations

import numpy as np

from grposcope.core.text import number
from grposcope.signs.equal_groups import equal_rows
from grposcope.signs.quantities import NO_SPREAD, SHORT, Quantities

DEAD = 0.99
"""Mean share of dead groups above which these explain that there is no gradient."""

OVER_BATCH = "rewards vary"
"""What is said where only the batch is known to have different rewards."""


def rewards_differ(quantities: Quantities, least: int = SHORT) -> str:
    """That rewards differ, as a clause; empty where that is not shown. least: rows of the spread that it takes."""
    spread, dead, equal = quantities.column("reward_std"), quantities.dead_fraction, equal_rows(quantities)
    if dead is None and (logged := quantities.column("dead_fraction")) is not None and logged.values.max() <= 1:
        dead = logged
    whole = dead is not None and not quantities.dead_fraction_is_bound
    if whole and dead is not None and dead.values.mean() > DEAD:
        return ""
    if equal is not None and equal.share == 1:
        return ""
    if spread is not None and len(spread) >= least and float(np.median(spread.values)) > NO_SPREAD:
        return f"rewards vary within groups ({quantities.key(spread.name)} {number(spread.values.mean())})"
    if dead is None or dead.values.mean() > DEAD:
        return ""
    return f"{1 - dead.values.mean():.0%} of groups have different rewards" if whole else OVER_BATCH
