"""Reward decline: the late reward is below the early one, or below that of the middle of the run."""

from __future__ import annotations

from grposcope.diagnosis.findings import OWN_METHOD, Evidence, Rule, RuleResult, moved
from grposcope.diagnosis.quantities import Quantities

MIDDLE = (0.4, 0.6)
"""The middle of the run."""


def check(quantities: Quantities) -> RuleResult:
    """The lesser of two one-sided p-values of a fall, doubled."""
    reward = quantities.require("reward")
    whole, lately = reward.curve.change(), reward.curve.change(MIDDLE)
    worse = min((whole, lately), key=lambda test: test.p_down)
    p = min(1.0, 2 * worse.p_down)
    since = "the beginning" if worse is whole else "the middle of the run"
    evidence = (Evidence(f"change of {reward.name} since {since}", worse.value, worse.se, column=reward.name),)
    because = f"the reward {moved(worse.value)} since {since}"
    return RuleResult(p, because, evidence, reward.onset() if p < 0.5 else None)


RULE = Rule(
    mode="reward decline",
    needs=("reward",),
    statistic="late − early and late − middle reward, least p-value × 2",
    threshold="p < α",
    source=OWN_METHOD,
    advice="go back to the checkpoint before the onset and lower the learning rate",
    check=check,
)
