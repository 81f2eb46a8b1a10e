"""Misconfiguration: settings that cannot work, as far as the record proves them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from grposcope.instruments.diagnosis import run_outcome
from grposcope.instruments.diagnosis.findings import OWN_METHOD, Evidence, Rule, RuleResult
from grposcope.instruments.diagnosis.quantities import LEAST, Quantities
from grposcope.maths.timeseries.noise import Array


def check(quantities: Quantities) -> RuleResult:
    """Groups of one rollout, a learning rate of 0, gradients of 0 without dead groups, advantages equal to rewards."""
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
    norm, dead = quantities.column("grad_norm"), quantities.dead_fraction
    explained = dead is None or dead.values.mean() > 0.99  # dead groups have no gradient
    if norm is not None and len(norm) >= LEAST and not norm.values.any() and not explained:
        faults.append((
            f"the gradient is exactly 0 on all {len(norm)} rows",
            "check that the parameters require gradients and that rewards differ",
        ))  # fmt: skip
    if not faults:
        return RuleResult(1.0, "no logged setting is provably wrong")
    because, advice = ("; ".join(part) for part in zip(*faults, strict=True))
    evidence = (Evidence("settings that the record proves wrong", float(len(faults))),)
    learns = run_outcome.of_run(run).direction == "up"  # it did work, however badly
    return RuleResult(
        0.0, because, evidence, None, advice=advice, brief=faults[0][0], instead="warning" if learns else None
    )  # fmt: skip


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


RULE = Rule(
    mode="misconfiguration",
    needs=(),
    statistic="facts of the record: group size, lr, gradients, advantages equal to rewards",
    threshold="proof, no noise involved",
    source=OWN_METHOD,
    advice="correct the setting",
    check=check,
    proof=True,
    beside="warning",
)
