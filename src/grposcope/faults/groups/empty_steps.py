"""Many steps have a gradient norm of 0.

What it is
    All groups of such a step have equal rewards, so that it costs rollouts and changes nothing.
How it shows
    The gradient norm is 0, or negligible beside its upper quartile, in a large share of late steps. They are
    counted.
What it does to the gradient
    It is 0 in these steps.
What to do
    Prompts that 20 to 80 % of rollouts solve, more prompts per step, or dynamic sampling (DAPO).
What decides
    The share of dead groups, logged or from the rollouts (grposcope plan RUN).
Sources
    theory: advantage degeneracy
    arXiv:2503.14476 (DAPO)
"""

from __future__ import annotations

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Grade, Sign, fact
from grposcope.core.text import apart_shares
from grposcope.maths.timeseries import level as levels
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs import run_outcome
from grposcope.signs.gradient_norms import live
from grposcope.signs.lost_gradient import is_lost
from grposcope.signs.quantities import SHORT, Quantities

MANY = 0.4
"""Share of late steps without a gradient that is worth a word."""

MOST = 0.85
"""Share of late steps without a gradient that leaves nothing to learn from, whatever the outcome may be."""


def _check(quantities: Quantities) -> Finding:
    """The share of late steps that have no gradient, above MANY."""
    norm = quantities.require("grad_norm", SHORT)
    empty = (~live(norm.values)).astype(float)
    first, last = (float(empty[levels.rows(len(empty), span)].mean()) for span in (EARLY, LATE))
    key, count = quantities.key(norm.name), int(empty.sum())
    evidence = (Sign(f"late steps without a gradient, last {1 - LATE[0]:.0%}", last, column=norm.name),)
    if last < MANY:
        return fact(False, f"{last:.0%} of late steps have no gradient to speak of", evidence)
    if is_lost(quantities):
        return fact(False, "no step has a gradient, and dead groups do not explain it", evidence)
    because = (
        f"{apart_shares(first, last)} of {norm.rows} have no gradient to speak of: "
        f"{count:,} of {len(empty):,} over the whole run"
    )
    undecided = run_outcome.of_run(quantities.run).state == "undecided" and last < MOST
    grades: tuple[Grade, Grade] | None = (FAULT.beside, "warning") if undecided else None
    what = "is 0" if not norm.values[empty > 0].any() else "is near 0"
    return fact(True, because, evidence, grades=grades, brief=f"{key} {what} in {count} of {len(empty)} {norm.rows}")


FAULT = Fault(
    name="empty steps",
    rank=160,
    remedy="use prompts that 20 to 80% of rollouts solve, draw more prompts per step, or filter dead "
    "groups (dynamic sampling, DAPO)",
    effect="these steps cost time and teach nothing",
    outgrown=True,
    log=LogTest(
        "empty steps",
        _check,
        needs=("grad_norm",),
        statistic="share of late steps whose gradient norm is 0 or negligible compared with the upper quartile",
        threshold=f"{MANY:g}",
    ),
)
