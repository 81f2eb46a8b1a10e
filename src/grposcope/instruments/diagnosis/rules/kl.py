"""KL blow-up: the policy moved far from the one it started as, and ever faster, or very far, or for no gain; or rows of
the KL exploded."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from grposcope.instruments.diagnosis.findings import Evidence, Rule, RuleResult
from grposcope.instruments.diagnosis.quantities import SHORT, MetricSeries, Quantities

FAR, VERY_FAR = 0.5, 3.0
"""Nats of KL per token: far if it also grows steeply, and very far however it got there."""

STEEP = 5.0
"""Mean KL of the last tenth over that of the first half; the ratio is 3.8 if it grows linearly."""

AWAY = 1.0
"""Nats of KL per token that have to be paid for: a note where the run gained, a warning where no gain is shown."""

NEAR = 0.25
"""Share of the last tenth's KL that the first rows' is below where the policy went away in this run."""

FIRST = 3
"""Rows whose median is the KL at the start."""

IMPOSSIBLE, TIMES = 100.0, 1000.0
"""Nats of KL per token that no policy has, if they are also TIMES the median of all rows: the estimate has exploded."""

SURE = 0.05 / 3
"""p-value of one of the three tests below which it is flagged, unless other rules share the level."""

LEFT = 2.0
"""Multiple of the first half's KL above which it has left its level."""

HALF, TAIL = (0.0, 0.5), (0.9, 1.0)
"""The parts of the run that are compared."""


def check(quantities: Quantities) -> RuleResult:
    """The last tenth above FAR and STEEP × the first half, or above VERY_FAR, or above AWAY from a start nearby; or
    rows that exploded."""
    kl = quantities.require("kl", SHORT)
    usual = float(np.median(kl.values))
    exploded = np.flatnonzero((kl.values > IMPOSSIBLE) & (kl.values > TIMES * usual))
    if len(exploded) and float(np.median(kl.values[-len(kl) // 10 :])) < VERY_FAR:  # it came back
        return _exploded(kl, exploded, quantities.key(kl.name))
    if kl.logs is not None:
        early, late = kl.geometric_mean(HALF), kl.geometric_mean(TAIL)
        far, away, very_far = (kl.logs.level(TAIL, math.log(limit)).p_up for limit in (FAR, AWAY, VERY_FAR))
        steep = kl.logs.change(HALF, TAIL, minus=math.log(STEEP)).p_up
    else:
        first, last = kl.level(HALF), kl.level(TAIL)
        early, late = (first.value, first.se), (last.value, last.se)
        far, away, very_far = (kl.level(TAIL, limit).p_up for limit in (FAR, AWAY, VERY_FAR))
        steep = kl.change(HALF, TAIL, STEEP).p_up
    began_near = float(np.median(kl.values[:FIRST])) < NEAR * late[0]
    blown, unpaid = max(far, steep), away if began_near else 1.0
    p = min(1.0, 3 * min(blown, very_far, unpaid))
    evidence = (
        Evidence(f"{kl.name}, first half", *early, column=kl.name),
        Evidence(f"{kl.name}, last tenth", *late, f"{FAR:g} and {STEEP:g} × the first half, or {VERY_FAR:g}", kl.name),
    )
    because = f"the KL to the starting policy went from {early[0]:.3g} to {late[0]:.3g} nats per token"
    onset = kl.first_above(max(LEFT * early[0], usual)) if p < 0.5 else None
    brief = quantities.went(kl.name, early[0], late[0])
    if min(blown, very_far) <= SURE:
        return RuleResult(p, because, evidence, onset, brief=brief)
    return RuleResult(p, because, evidence, onset, brief=brief, beside="note", instead="warning")


def _exploded(kl: MetricSeries, rows: NDArray[np.int64], key: str) -> RuleResult:
    """Single rows whose KL is beyond what a policy can have."""
    largest, usual = float(kl.values[rows].max()), float(np.median(kl.values))
    because = (
        f"the KL to the starting policy reaches {largest:.3g} nats per token on {len(rows)} "
        f"row{'s' * (len(rows) != 1)}, first at step {int(kl.steps[rows[0]]):,}; its median is {usual:.3g}"
    )
    evidence = (
        Evidence(
            f"largest {kl.name}", largest, limit=f"{IMPOSSIBLE:g} nats and {TIMES:g} × the median", column=kl.name
        ),
    )
    advice = "read the completions of that step: one token that became nearly impossible makes the estimate explode"
    brief = f"{key} up to {largest:.2g} in {len(rows)} of {len(kl)} steps"
    return RuleResult(0.0, because, evidence, advice=advice, brief=brief)


RULE = Rule(
    mode="kl blow-up",
    needs=("kl",),
    statistic="mean log KL of the last tenth against limits and against the first half",
    threshold=f"> {FAR:g} nats and > {STEEP:g} × the first half, or > {VERY_FAR:g} nats; the error shrinks with n; "
    f"or > {AWAY:g} nats after a start below {NEAR:g} of that, with no gain (a warning); or a row > {IMPOSSIBLE:g} "
    f"nats and > {TIMES:g} × the median",
    source="method of this project; Gao, Schulman & Hilton 2022 (arXiv:2210.10760) for reward against KL",
    advice="raise the KL coefficient or lower the learning rate; go back to a checkpoint before the onset",
    check=check,
    limit=True,
    beside="warning",
)
