"""A setting with which nothing can be learned, as the record proves it.

What it is
    A learning rate of 0, groups of one rollout, or advantages without a baseline.
How it shows
    The learning rate is exactly 0 in every row; the group size is 1; largest and least advantage equal largest and
    least reward.
What it does to the gradient
    There is none, or it is that of the rewards without anything to compare them with.
What to do
    Correct the setting that is named: num_generations, rollout.n or n_samples_per_prompt at 4 or more; a learning
    rate.
What decides
    The setting in force: the trainer's own record of its configuration.
Sources
    method of this project
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from grposcope.core.fault import OWN_METHOD, Fault, LogTest
from grposcope.core.finding import Finding, Grade, Sign, fact
from grposcope.maths.timeseries.noise import Array
from grposcope.signs import run_outcome
from grposcope.signs.quantities import LEAST, Quantities


def check(quantities: Quantities) -> Finding:
    """Groups of one rollout, a learning rate of 0, advantages equal to rewards."""
    table, run = quantities.run.table, quantities.run
    faults: list[tuple[str, str]] = []
    if quantities.group_size == 1 or (len(run.groups) and int(run.groups.sizes.max()) == 1):
        faults.append((
            "each group has one rollout, so there is nothing to compare it with",
            "set num_generations, rollout.n or n_samples_per_prompt to 4 or more",
        ))  # fmt: skip
    elif _advantages_are_rewards(table):
        faults.append((
            "advantages equal rewards, so groups have one rollout each or no baseline is subtracted",
            "set rollout.n (the group size) to 4 or more and adv_estimator to grpo",
        ))  # fmt: skip
    rate = quantities.column("lr")
    if rate is not None and len(rate) >= LEAST and not rate.values.any():
        faults.append((
            f"the learning rate is 0 on all {len(rate)} rows",
            "set a learning rate; check the warm-up and the length of the schedule",
        ))  # fmt: skip
    if not faults:
        return fact(False, "no logged setting is provably wrong")
    because, advice = ("; ".join(part) for part in zip(*faults, strict=True))
    evidence = (Sign("settings that the record proves wrong", float(len(faults))),)
    learns = run_outcome.of_run(run).direction == "up"  # it did work, however badly
    grades: tuple[Grade, Grade] | None = (FAULT.beside, "warning") if learns else None
    return fact(True, because, evidence, None, remedy=advice, brief=faults[0][0], grades=grades)


def _advantages_are_rewards(table: Mapping[str, Array]) -> bool:
    """Whether largest and least advantage equal largest and least reward on every row."""
    names = [(f"advantage_{end}", f"reward_{end}") for end in ("max", "min")]
    if any(name not in table for pair in names for name in pair):
        return False
    pairs = [(table[a], table[b]) for a, b in names]
    rows = np.all([np.isfinite(a) & np.isfinite(b) for a, b in pairs], axis=0)
    if rows.sum() < 5 or not any(np.ptp(b[rows]) > 0 or b[rows].any() for _, b in pairs):
        return False
    return all(bool(np.allclose(a[rows], b[rows], rtol=1e-4, atol=1e-6)) for a, b in pairs)


FAULT = Fault(
    name="misconfiguration",
    rank=10,
    remedy="correct the setting",
    source=OWN_METHOD,
    beside="warning",
    log=LogTest(
        "misconfiguration",
        check,
        needs=(),
        statistic="facts of the record: group size, lr, advantages equal to rewards",
        threshold="proof, no noise involved",
    ),
)
