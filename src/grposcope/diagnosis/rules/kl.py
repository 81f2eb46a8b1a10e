"""KL blow-up: the policy has moved far from the one it started as, and ever faster, or very far."""

from __future__ import annotations

import math

from grposcope.diagnosis.findings import Evidence, Rule, RuleResult
from grposcope.diagnosis.quantities import SHORT, Quantities

FAR, VERY_FAR = 0.5, 3.0
"""Nats of KL per token: far if it also grows steeply, and very far however it got there."""

STEEP = 5.0
"""Mean KL of the last tenth over that of the first half; the ratio is 3.8 if it grows linearly."""

HALF, TAIL = (0.0, 0.5), (0.9, 1.0)
"""The parts of the run that are compared."""


def check(quantities: Quantities) -> RuleResult:
    """The last tenth above FAR and above STEEP × the first half, or above VERY_FAR."""
    kl = quantities.require("kl", SHORT)
    if kl.logs is not None:
        early, late = kl.geometric_mean(HALF), kl.geometric_mean(TAIL)
        far, very_far = (kl.logs.level(TAIL, math.log(limit)).p_up for limit in (FAR, VERY_FAR))
        steep = kl.logs.change(HALF, TAIL, minus=math.log(STEEP)).p_up
    else:
        first, last = kl.level(HALF), kl.level(TAIL)
        early, late = (first.value, first.se), (last.value, last.se)
        far, very_far = (kl.level(TAIL, limit).p_up for limit in (FAR, VERY_FAR))
        steep = kl.change(HALF, TAIL, STEEP).p_up
    p = min(1.0, 2 * min(max(far, steep), very_far))
    evidence = (
        Evidence(f"{kl.name}, first half", *early, column=kl.name),
        Evidence(f"{kl.name}, last tenth", *late, f"{FAR:g} and {STEEP:g} × the first half, or {VERY_FAR:g}", kl.name),
    )
    because = f"the KL to the starting policy went from {early[0]:.3g} to {late[0]:.3g} nats per token"
    return RuleResult(p, because, evidence, kl.onset() if p < 0.5 else None)


RULE = Rule(
    mode="kl blow-up",
    needs=("kl",),
    statistic="mean log KL of the last tenth against limits and against the first half",
    threshold=f"> {FAR:g} nats and > {STEEP:g} × the first half, or > {VERY_FAR:g} nats; the error shrinks with n",
    source="method of this project; Gao, Schulman & Hilton 2022 (arXiv:2210.10760) for reward against KL",
    advice="raise the KL coefficient or lower the learning rate; go back to a checkpoint before the onset",
    check=check,
    limit=True,
    beside="warning",
)
