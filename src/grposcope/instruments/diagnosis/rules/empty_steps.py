"""Empty steps: steps whose gradient is 0, because no group of theirs has rewards that differ. They are counted."""

from __future__ import annotations

from grposcope.core.text import apart_shares
from grposcope.instruments.diagnosis import run_outcome
from grposcope.instruments.diagnosis.findings import Evidence, Rule, RuleResult
from grposcope.instruments.diagnosis.quantities import SHORT, Quantities
from grposcope.instruments.diagnosis.rules.gradient_spikes import live
from grposcope.maths.timeseries import level as levels
from grposcope.maths.timeseries.change import EARLY, LATE

MANY = 0.4
"""Share of late steps without a gradient that is worth a word."""

MOST = 0.85
"""Share of late steps without a gradient that leaves nothing to learn from, whatever the outcome may be."""


def check(quantities: Quantities) -> RuleResult:
    """The share of late steps that have no gradient, above MANY."""
    norm = quantities.require("grad_norm", SHORT)
    empty = (~live(norm.values)).astype(float)
    first, last = (float(empty[levels.rows(len(empty), part)].mean()) for part in (EARLY, LATE))
    key, count = quantities.key(norm.name), int(empty.sum())
    evidence = (Evidence(f"late steps without a gradient, last {1 - LATE[0]:.0%}", last, column=norm.name),)
    if last < MANY:
        return RuleResult(1.0, f"{last:.0%} of late steps have no gradient", evidence)
    because = f"{apart_shares(first, last)} of steps have no gradient: {count} of {len(empty)} over the whole run"
    undecided = run_outcome.of_run(quantities.run).state == "undecided" and last < MOST
    brief = f"{key} is 0 in {count} of {len(empty)} steps"
    return RuleResult(0.0, because, evidence, instead="warning" if undecided else None, brief=brief)


RULE = Rule(
    mode="empty steps",
    needs=("grad_norm",),
    statistic="share of late steps whose gradient norm is 0 or negligible compared with the upper quartile",
    threshold=f"{MANY:g}",
    source="theory: advantage degeneracy, a group of equal rewards has no gradient",
    advice="use prompts that 20 to 80% of rollouts solve, draw more prompts per step, or filter dead "
    "groups (dynamic sampling, DAPO)",
    check=check,
    proof=True,
    costs="these steps cost time and teach nothing",
)
