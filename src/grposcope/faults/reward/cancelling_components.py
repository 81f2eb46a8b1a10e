"""The components of the reward vary while their sum does not, since they go against each other.

What it is
    A wrong sign, or weights that cancel.
How it shows
    Components change from step to step and their sum hardly does; two of them correlate below −0.5. Means per step
    are compared, whatever spread a trainer logs.
What it does to the gradient
    What one component asks for the other forbids.
What to do
    Check the signs and weights of the reward functions; normalise each before adding them.
What decides
    grposcope rewards RUN: shares of the gradient and the cosine between components.
Sources
    method of this project
"""

from __future__ import annotations

import math

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, measured
from grposcope.maths.timeseries import level as levels
from grposcope.maths.timeseries.noise import Array
from grposcope.signs.quantities import LEAST, Quantities, too_few

CANCELLED = 0.1
"""Change of the reward from step to step below this share of its components' changes: they cancel."""

AGAINST = -0.5
"""Correlation of the changes of two components below which they go against each other."""

WHOLE = (0.0, 1.0)
"""The whole run."""


def _check(quantities: Quantities) -> Finding:
    """Changes of the reward below CANCELLED × the root of the sum of its components' squared changes, where two of
    these go against each other."""
    parts, reward = quantities.components(), quantities.require("reward")
    if len(parts) < 2:
        return cannot_tell(quantities.absent_components(2), "components")
    table = quantities.run.table
    columns = np.array([table[reward.name], *(table[f"component/{name}"] for name in parts)])
    columns = columns[:, np.isfinite(columns).all(0)]
    if columns.shape[1] < LEAST:
        return cannot_tell(too_few(columns.shape[1], "reward components", LEAST), "components")
    total, *each = np.diff(columns, axis=1)
    squares = np.square(each).sum(0)
    if not squares.any():
        return measured(1.0, "the reward components do not vary from step to step")
    of_sum, of_parts = (math.sqrt(float(np.square(values).mean())) for values in (total, np.sqrt(squares)))
    limit = f"limit {CANCELLED:g} × the components' {of_parts:.3g}"
    evidence = (Sign(f"change of {reward.name} from step to step", of_sum, limit=limit, column=reward.name),)
    but = "but their sum only by" if of_sum < of_parts else "and their sum by"
    because = f"the reward components change by {of_parts:.2g} from step to step {but} {of_sum:.2g}"
    if _most_against(np.array(each)) > AGAINST:
        return measured(1.0, because, evidence)
    test = levels.level(np.square(total) - CANCELLED**2 * squares, WHOLE)
    return measured(test.p_down, because, evidence, brief="reward components cancel out")


def _most_against(changes: Array) -> float:
    """The least correlation of any two components' changes (C, n); 1 where only one varies."""
    varying = changes[changes.std(1) > 0]
    return float(np.corrcoef(varying).min()) if len(varying) > 1 else 1.0


FAULT = Fault(
    name="cancelling components",
    rank=150,
    remedy="check the signs and weights of the reward functions; normalise each before adding them",
    beside="warning",
    log=LogTest(
        "cancelling components",
        _check,
        needs=("components", "reward"),
        statistic="squared change of the mean reward from step to step − ρ² × the sum of the same over its components",
        threshold=f"below {CANCELLED:g}² ×, and two components correlate below {AGAINST:g}",
        limit=True,
    ),
)
