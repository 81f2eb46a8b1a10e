"""Whether a rollout is left out of training depends on its reward or its length.

What it is
    A limit of time or length that loses long rollouts, or a filter that keeps what is easy to learn from.
How it shows
    Dropped rollouts differ from their siblings in reward or length by more than permutation allows; or dropped
    groups from kept ones. In a log: a step has ever fewer rollouts.
What it does to the gradient
    What is left is no sample of the policy: mean reward and gradient are biased toward what is kept, above all
    short answers.
What to do
    Drop by a criterion that does not look at the answer, or keep the dropped rollouts with their reward.
What decides
    Rollouts that were left out beside those that were kept: grposcope verify FOLDER.
Sources
    NeMo-RL #3599, long rollouts lost at restarts: https://github.com/NVIDIA-NeMo/RL/pull/3599
    method of this project: exchangeable siblings"""

from __future__ import annotations

import math

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import number
from grposcope.signs import onset
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities
from grposcope.signs.rollouts.claims import dropped_rollouts

_FEWER = 0.5
"""Rollouts of a step at last over those at first, at most."""

_NAMES = ("rollouts", "num_valid_samples")
"""Columns, or what their names end with, that count the rollouts of a step."""

_KEEP_THEM = (
    "find what leaves rollouts out (staleness, errors, a limit of time or length, groups of equal rewards) and keep "
    "the batch at its size; where long answers are lost, what is left is no sample of the policy"
)
"""What to do where steps have ever fewer rollouts."""


def _check(quantities: Quantities) -> Finding:
    """That a step has _FEWER times as many rollouts at last as at first, or less."""
    counted = _counts(quantities)
    if counted is None:
        return cannot_tell("rollouts of a step are not counted")
    first, last = counted.present.first.value, counted.present.last.value
    evidence = (Sign(f"{counted.name}, last over first", last / first, limit=f"counts up to {_FEWER:g}"),)
    if last > _FEWER * first:
        return fact(False, f"a step has {number(last)} rollouts, {number(first)} at first", evidence)
    because = (
        f"{quantities.went(counted.name, first, last)} rollouts of a step: what is drawn by chance moves its mean "
        f"reward and its gradient {math.sqrt(first / last):.2g} × as much as at first"
    )
    brief = quantities.went(counted.name, first, last, " rollouts a step")
    return fact(True, because, evidence, since=onset.since(counted, -1), remedy=_KEEP_THEM, brief=brief,
                grades=("note", "note"))  # fmt: skip


def _counts(quantities: Quantities) -> MetricSeries | None:
    """The first column that counts the rollouts of a step on enough rows, none of them without; else None."""
    names = (name for end in _NAMES for name in quantities.run.table if name.rpartition("/")[2] == end)
    series = (quantities.column(name) for name in names)
    return next((one for one in series if one is not None and len(one) >= LEAST and one.values.min() > 0), None)


FAULT = Fault(
    name="selective dropping",
    rank=6.8,
    remedy="drop by a criterion that does not depend on the answer, or keep the dropped rollouts with their reward",
    beside="warning",
    log=LogTest(
        "selective dropping",
        _check,
        needs=(),
        statistic="rollouts of a step, last over first level",
        threshold=f"{_FEWER:g}, a fact",
        where_logged=True,
    ),
    rollouts=(dropped_rollouts.PROOF,),
)
