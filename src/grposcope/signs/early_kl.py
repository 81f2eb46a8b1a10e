"""A KL that is far within the first few steps: the first updates were many times too large."""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import number
from grposcope.signs.quantities import Quantities

ROWS, STEPS = 5, 10
"""Rows after the first whose KL is looked at, and the steps within which they have to lie."""

FAR, START = 0.25, 0.02
"""Nats of KL per token from which the first updates went far, and at most of the first row, which is the start."""

FOLLOWS = (
    "kl blow-up", "reward decline", "constant reward", "starved", "dead after a fall", "empty steps", "length",
    "entropy collapse", "entropy explosion", "gradient explosion", "never paid",
)  # fmt: skip
"""Faults that follow where the policy was lost within its first steps."""


def check(quantities: Quantities) -> Finding:
    """The KL starts at 0 and is beyond FAR in all of the next ROWS rows, within STEPS steps."""
    kl = quantities.require_computed_kl()
    near = kl.steps[1 : ROWS + 1] - kl.steps[0] <= STEPS
    if quantities.run.window > 1 or not near.all():
        return cannot_tell("rows are too far apart to show the first steps")
    first = kl.values[1 : ROWS + 1]
    evidence = (Sign(f"{kl.name}, rows 2 to {ROWS + 1}", float(np.median(first)), column=kl.name),)
    if kl.values[0] > START or first.min() < FAR:
        return fact(False, "the first steps do not lead far from the start", evidence)
    rate = quantities.column("lr")
    at = f" at a learning rate of {rate.values[0]:.2g}" if rate is not None else ""
    because = (
        f"{quantities.key(kl.name)} is {number(first[0])} nats per token at step {int(kl.steps[1]):,}{at}: sound first "
        "steps move it by 0.001 or so"
    )
    brief = f"{quantities.key(kl.name)} {number(first[0])} nats at step {int(kl.steps[1]):,}"
    return fact(True, because, evidence, explains=FOLLOWS, brief=brief, remedy=REMEDY)


REMEDY = (
    "lower the learning rate to a tenth or less (1e-6 is usual for all weights, 1e-5 for adapters), with a warm-up, "
    "and start again: no checkpoint of this run is sound"
)

TEST = LogTest(
    "high learning rate",
    check,
    needs=("kl",),
    statistic="KL of the first rows",
    threshold=f"0 in the first row, > {FAR:g} nats in each of the next {ROWS} within {STEPS} steps",
)
