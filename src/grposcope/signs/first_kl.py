"""A KL that is far from 0 from the first step on: the reference is not the policy that the run began with."""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Grade, Sign, cannot_tell, fact
from grposcope.core.text import number
from grposcope.signs import run_outcome
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities

FAULT = "wrong reference"

FAR = 0.05
"""Least KL of the first row, in nats per token: number formats alone make less than a tenth of that."""

FIRST, LATER = 5, 20
"""First rows that are compared with the first one, and rows up to which it has to have grown where it began at 0."""

GROWN = 2.0
"""KL of the later of these rows over that of the first, from which on it grows from 0."""


def _check(quantities: Quantities) -> Finding:
    """The KL of the first row, where that is of the first step."""
    kl = quantities.require_computed_kl(LEAST)
    key = quantities.key(kl.name)
    if quantities.run.meta.engine in ("", "generic") or not _begins(quantities, kl):
        return cannot_tell(f"whether the first row of {key} is of the first step is not known")
    first, later = float(kl.values[0]), float(np.median(kl.values[FIRST:LATER]))
    if first < FAR or kl.values[:FIRST].min() < first / GROWN or later > GROWN * first:
        return fact(False, f"{key} is {number(first)} nats in the first row, from which it goes on")
    because = (
        f"{key} is {number(first)} nats in the first row and {number(later)} after it: it is 0 where the policy begins "
        "as its reference, so that the reference is another model, as where an adapter or a checkpoint is loaded into "
        "one of the two alone"
    )
    grades: tuple[Grade, Grade] = ("warning", "warning")
    if run_outcome.of_run(quantities.run).fate != "flat":
        grades = ("note", "note")
    return fact(True, because, (Sign(f"{kl.name}, first row", first, column=kl.name),), int(kl.steps[0]), fault=FAULT,
                brief=f"{key} is {number(first)} nats at the first step", grades=grades)  # fmt: skip


def _begins(quantities: Quantities, kl: MetricSeries) -> bool:
    """Whether the first row is of the first steps: by its number, and by the part of the epoch that is over."""
    if kl.steps[0] > max(quantities.run.window, 1):
        return False
    epochs = quantities.get("epoch", LEAST)
    return epochs is None or bool(epochs.values[0] <= 2 * np.median(np.diff(epochs.values)) + 0.01)


TEST = LogTest(
    FAULT,
    _check,
    needs=("kl",),
    statistic="KL to the reference in the first row, where that is of the first step, against those after it",
    threshold=f"at least {FAR:g} nats, and the median of rows {FIRST + 1} to {LATER} is below {GROWN:g} × that: a fact",
    where_logged=True,
)
