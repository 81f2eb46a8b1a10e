"""Dynamic sampling draws many batches for each one that it keeps, up to its limit.

Asked as
    Generated too many. Please check if your data are too difficult
What it is
    Nearly all groups have equal rewards and are dropped. At the largest number of batches that is allowed the run
    stops.
How it shows
    num_gen_batches is several, or at its limit. Before a run: batches needed, train_batch_size over gen_batch_size ×
    the share of live groups, come near max_num_gen_batches.
What it does to the gradient
    It is that of the few live groups, at several times the price; then there is none.
What to do
    Use prompts that the model solves sometimes, or fine-tune on examples first. A larger max_num_gen_batches (0: no
    limit) or gen_batch_size only keeps the run alive.
What decides
    The share of groups with different rewards at this success rate: grposcope lint SETTINGS --success-rate P.
Sources
    verl #953: https://github.com/verl-project/verl/issues/953
    DAPO #22: https://github.com/BytedTsinghua-SIA/DAPO/issues/22
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import percent
from grposcope.faults.checks.expected_dead import expected
from grposcope.faults.known_task import Known
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import LATE
from grposcope.signs.quantities import SHORT, Quantities
from grposcope.signs.settings.names import group_size

MANY = 4.0
"""Batches drawn per batch kept, on the late average, that are too many."""

NEAR = 0.5
"""Share of the batches that are allowed from which those that are needed come near."""

FILTER = "algorithm.filter_groups."


def _check(quantities: Quantities) -> Finding:
    """The column num_gen_batches, of verl's dynamic sampling, above MANY."""
    name = next((name for name in quantities.run.table if name.rpartition("/")[2] == "num_gen_batches"), None)
    drawn = None if name is None else quantities.column(name)
    if drawn is None or len(drawn) < SHORT:
        return cannot_tell("no batches of dynamic sampling are logged")
    late = float(drawn.values[level.rows(len(drawn), LATE)].mean())
    evidence = (Sign("batches drawn per batch kept", late, limit=f"too many from {MANY:g}", column=drawn.name),)
    if late < MANY:
        return fact(False, f"{late:.3g} batches are drawn for each that is kept", evidence)
    top = int(drawn.values.max())
    stands = int(np.argmin(np.append(drawn.values[::-1] == top, False)))
    last = f", and it stands at {top}, its largest, in the last {stands} steps" if stands > 1 else f", {top} at most"
    because = (
        f"dynamic sampling draws {late:.3g} batches for each that it keeps ({quantities.key(drawn.name)}){last}: most "
        "groups are dropped for equal rewards, and at max_num_gen_batches the run stops"
    )
    brief = f"{late:.2g} batches are drawn for each that is kept"
    return fact(True, because, evidence, explains=("starved", "saturated"), brief=brief)


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Batches that dynamic sampling will need at the success rate, against those that are allowed."""
    most, group = config.number(FILTER + "max_num_gen_batches"), group_size(config)
    train = config.number("data.train_batch_size")
    if not config.on(FILTER + "enable") or not most or most <= 0 or group is None or group < 2 or not train:
        return
    drawn = config.number("data.gen_batch_size") or train
    share, basis, solved = expected(group, facts)
    if share is None:
        yield cannot_tell(basis, "success rate")
        return
    needed = train / (drawn * (1 - share)) if share < 1 else float("inf")
    if needed < NEAR * most:
        return
    yield fact(
        True,
        f"{percent(share, 1)} of groups of {group} are dropped ({basis}), so that a step needs {needed:.2g} batches of "
        f"{drawn:g} prompts for {train:g} that are kept, and max_num_gen_batches allows {most:g}: beyond it the "
        "run stops",
        config.signs(FILTER + "max_num_gen_batches", "data.gen_batch_size", "data.train_batch_size"),
        grade="failing" if needed > most else "warning",
        brief="dynamic sampling may run out of batches",
        remedy=("use harder prompts" if solved else "use prompts that the model solves sometimes, or fine-tune on "
                "examples first") + f"; {FILTER}max_num_gen_batches=0 lifts the limit, at this price",
    )  # fmt: skip


FAULT = Fault(
    name="filter runs out",
    rank=95,
    remedy="use prompts that the model solves sometimes, or fine-tune on examples first; max_num_gen_batches=0 lifts "
    "the limit at the price of ever more rollouts",
    effect="most of what is sampled is dropped",
    beside="warning",
    instead="warning",
    log=LogTest(
        "filter runs out",
        _check,
        needs=(),
        where_logged=True,
        statistic="late mean of the batches that dynamic sampling drew for each that it kept",
        threshold=f"{MANY:g}",
    ),
    settings=SettingsCheck(
        "filter runs out",
        _settings,
        ("verl",),
        "dynamic sampling that will need more batches than are allowed",
        ("failing", "warning"),
        "verl #953; DAPO #22",
    ),
)
