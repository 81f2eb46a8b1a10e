"""How often each training problem was drawn: by the groups that are recorded, else by the epochs that are logged."""

from __future__ import annotations

import numpy as np

from grposcope.core.text import number
from grposcope.signs.quantities import Quantities

OFTEN = 20.0
"""Draws of each problem from which it may be learned by heart."""


def learned_by_heart(quantities: Quantities) -> str:
    """That each training problem was drawn OFTEN times or more, as a clause; empty where not, or where not known."""
    groups, epoch = quantities.run.groups, quantities.column("epoch")
    if len(groups):
        problems = len(np.unique(groups.problem))
        times = len(groups) / problems
        said = f"each of the {problems:,} training problems was drawn {number(times)} times"
        return said if times >= OFTEN else ""
    times = 0.0 if epoch is None else float(epoch.values.max())
    return f"each training problem was drawn {number(times)} times, by the epochs" if times >= OFTEN else ""
