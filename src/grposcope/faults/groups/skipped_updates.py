"""The trainer says of many steps that it made no update, since there was nothing to train on.

Asked as
    Advanced step from 0 to 1 (no training occurred)
What it is
    No group of the step has two different rewards, so that every advantage is 0; the trainer drops such groups and
    skips a step that has no other.
How it shows
    ART prints that it skips tuning and that no training occurred. The number of the step goes on all the same, and the
    reward stays where it was.
What it does to the gradient
    There is none: the weights after such a step are those before it.
What to do
    Give rollouts of a group different rewards: prompts that are solved sometimes, more rollouts per group, a
    temperature that makes them differ, or partial credit. See that groups hold several rollouts of one prompt.
What decides
    The rewards of the rollouts of one group, read side by side.
Sources
    ART #394: https://github.com/OpenPipe/ART/issues/394
"""

from __future__ import annotations

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import percent
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import LATE
from grposcope.signs.quantities import SHORT, Quantities

MANY = 0.4
"""Share of late steps without an update from which it is a fault, as of steps without a gradient."""


def _check(quantities: Quantities) -> Finding:
    """The late share of steps of which the trainer says that it made no update, at MANY or above."""
    trained = quantities.column("trained")
    if trained is None or len(trained) < SHORT:
        return cannot_tell("the log does not say of which steps no update was made")
    skipped = trained.values == 0
    late = float(skipped[level.rows(len(skipped), LATE)].mean())
    evidence = (Sign("late steps without an update", late, limit=f"many from {percent(MANY)}", column=trained.name),)
    said = f"{int(skipped.sum()):,} of {len(skipped):,} steps were skipped"
    if late < MANY:
        return fact(False, said, evidence)
    because = f"{said}: the trainer says that no training occurred, as where no group has two different rewards"
    explains = ("starved", "empty steps", "no learning", "zero loss")
    return fact(True, because, evidence, brief=f"{said}, no training occurred", explains=explains)


FAULT = Fault(
    name="skipped updates",
    rank=94,
    remedy="compare the rewards of the rollouts of one group: make them differ by prompts that are solved sometimes, "
    "more rollouts per group, a higher temperature or partial credit",
    effect="these steps cost rollouts and teach nothing",
    log=LogTest(
        "skipped updates",
        _check,
        needs=(),
        where_logged=True,
        statistic="late share of the steps of which the trainer says that it made no update",
        threshold=f"{MANY:g}",
    ),
)
