"""A ratio of probabilities overflowed: trainer and sampler were further apart than a float can say.

Asked as
    loss and grad_norm become inf or NaN in asynchronous training
What it is
    The exponential of log π − log π_sampler is infinite from a difference of 89 on (float32, bfloat16), as for tokens
    that a stale or another policy drew. Where the token is masked, infinity × 0 is NaN all the same.
How it shows
    A comparison of trainer and sampler is infinite in the first row in which anything is not finite; often it has grown
    before.
What it does to the gradient
    It is infinite or NaN, and so are the weights, unless the step is skipped.
What to do
    Bound the log-ratio before the exponential, skip updates whose gradient norm is not finite, and let rollouts lag
    less; go back to a checkpoint from before.
What decides
    The largest difference of log-probabilities of that batch, and the age of the rollout that has it.
Sources
    prime-rl #2972: https://github.com/PrimeIntellect-ai/prime-rl/issues/2972
"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.not_finite import not_finite
from grposcope.core.text import number
from grposcope.faults.record import non_finite
from grposcope.signs.quantities import SHORT, Quantities

GROWN = 5.0
"""Median of the last SHORT rows before it over that of the first SHORT, from which on the difference had grown."""


def _check(quantities: Quantities) -> Finding:
    """A comparison with the sampler that is infinite in the first row that lost anything."""
    table = quantities.run.table
    compared = [name for name in table if name.startswith("mismatch/")]
    if not compared:
        return cannot_tell("no comparison of trainer and sampler is logged", "mismatch")
    lost = not_finite(table)
    rows = np.flatnonzero(np.any(list(lost.values()), axis=0)) if lost else np.zeros(0, int)
    infinite = [name for name in compared if len(rows) and np.isinf(table[name][rows[0]])]
    if not infinite:
        return fact(False, "no comparison of trainer and sampler is infinite where a first value is not finite")
    name, row = infinite[0], int(rows[0])
    step, key = int(table["step"][row]), quantities.key(name)
    before = table[name][:row][np.isfinite(table[name][:row])]
    first, last = (float(np.median(part)) if len(part) else np.nan for part in (before[:SHORT], before[-SHORT:]))
    grew = len(before) >= 2 * SHORT and first > 0 and last > GROWN * first
    growth = f" after it had grown from {number(first)} to {number(last)}" if grew else ""
    because = f"{key} is infinite at step {step:,}{growth}, in the first row that lost a value: a ratio overflowed"
    evidence = (Sign(f"{name}, median of the {SHORT} rows before", last, column=name),) if len(before) >= SHORT else ()
    follows = ("non-finite", "sampler mismatch", *non_finite.EXPLAINS)
    return fact(True, because, evidence, step, explains=follows, remedy=f"{FAULT.remedy}{OLDER if grew else ''}",
                brief=f"{key} is infinite at step {step:,}")  # fmt: skip


OLDER = "; look for what let trainer and sampler go apart before (lag, weights that do not arrive)"
"""What to do beside where trainer and sampler had gone apart before."""

FAULT = Fault(
    name="ratio overflow",
    rank=19,
    remedy="clamp the log-ratio before its exponential (and where a token is masked), skip updates whose gradient norm "
    "is not finite, leave out rollouts that are too old; go back to a checkpoint from before",
    beside="failing",
    log=LogTest(
        "ratio overflow",
        _check,
        needs=("mismatch",),
        statistic="comparisons of trainer and sampler in the first row in which a value is not finite",
        threshold="one that is infinite",
        where_logged=True,
    ),
)
