"""Rows in which no group has two different rewards: by the share of dead groups, or by advantages that are all 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grposcope.signs.lasting_state import BEFORE, begins
from grposcope.signs.quantities import LEAST, Quantities

ALL = 0.99
"""Share of dead groups that is all of them."""


def all_equal_since(quantities: Quantities) -> float | None:
    """The step since which all groups are dead in every row, where that began at once in the middle; None else."""
    dead = quantities.dead_fraction
    if dead is None or quantities.dead_fraction_is_bound or dead.values.max() > 1:
        return None
    first = begins(dead.values >= ALL)
    return None if first is None or dead.values[first - 1] > BEFORE else float(dead.steps[first])


@dataclass(frozen=True)
class EqualRows:
    """Of `rows` rows `equal` have equal rewards within every group, or one rollout in each. because: what says so, a
    clause. compared: whether rewards were compared; advantages of 0 may be those of groups of one."""

    equal: int
    rows: int
    because: str
    compared: bool = True

    @property
    def share(self) -> float:
        """Share of the rows whose groups are all equal."""
        return self.equal / self.rows


def equal_rows(quantities: Quantities) -> EqualRows | None:
    """Rows in which no group has two different rewards; None where no dead groups, spreads of 0 or advantages are
    logged."""
    dead = quantities.dead_fraction
    if dead is not None and not quantities.dead_fraction_is_bound and len(dead) >= LEAST and dead.values.max() <= 1:
        equal = int((dead.values >= ALL).sum())
        return EqualRows(
            equal, len(dead), f"rewards within every group are equal in {equal} of {len(dead)} {dead.rows}"
        )
    spread = quantities.column("reward_std")
    if spread is not None and len(spread) >= LEAST and not spread.values.any():
        said = f"the spread within groups is exactly 0 in {len(spread)} of {len(spread)} rows"
        return EqualRows(len(spread), len(spread), said, compared=False)
    least, most = quantities.run.table.get("advantage_min"), quantities.run.table.get("advantage_max")
    if least is None or most is None:
        return None
    there = np.isfinite(least) & np.isfinite(most)
    if there.sum() < LEAST:
        return None
    equal, rows = int(((least == 0) & (most == 0))[there].sum()), int(there.sum())
    return EqualRows(equal, rows, f"every advantage is exactly 0 in {equal} of {rows} rows", compared=False)
