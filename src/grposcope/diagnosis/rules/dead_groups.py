"""Saturated and starved: groups of equal rewards, which teach nothing, with the reward at its ceiling or not.

At success rate p a group of G rollouts is dead with probability p^G + (1 − p)^G.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from grposcope.diagnosis.findings import Evidence, Rule, RuleResult, cannot_tell, late_level, least_of
from grposcope.diagnosis.group_signal import signal
from grposcope.diagnosis.quantities import SHORT, MetricSeries, Quantities
from grposcope.timeseries.change import EARLY, LATE

DEAD = 0.85
"""Share of dead groups that leaves no signal to learn from."""

NEAR = 0.05
"""A share of dead groups this little below the limit is near it."""

SOLVED = 0.8
"""Reward above this share of its range, with dead groups: solved rather than hopeless."""

LEFT = 0.03
"""Share of rollouts that fail, of rewards that are 0 or 1, below which the prompts are solved whatever the groups."""


def check(quantities: Quantities, solved: bool) -> RuleResult:
    """Late dead groups above DEAD, with the reward at its ceiling where `solved`, and below it otherwise."""
    dead, reward = quantities.dead_fraction, quantities.get("reward", SHORT)
    if reward is None:
        return cannot_tell(quantities.absence("reward", SHORT), "reward")
    if dead is None or quantities.dead_fraction_is_bound:
        return _from_bounds(quantities, dead, reward, solved)
    late, early = dead.level(LATE, DEAD), dead.level(EARLY, DEAD)
    at_ceiling, place = _place(quantities, reward)
    p = late.p_up if at_ceiling == solved else 1.0
    because = f"{late.value + DEAD:.0%} of groups have equal rewards, at a {place}"
    from_the_start = not solved and early.value > 0
    if from_the_start and p < 0.5:
        because += ", and so from the start"
    of_groups = signal(quantities.run)
    evidence = (*_levels(dead, reward), *(of_groups.evidence() if of_groups is not None else ()))
    onset = None if p >= 0.5 else int(dead.steps[0]) if from_the_start else dead.first_above(DEAD)
    near = at_ceiling == solved and late.value > -NEAR
    return RuleResult(p, because, evidence, onset, near=near)


def _from_bounds(quantities: Quantities, dead: MetricSeries | None, reward: MetricSeries, solved: bool) -> RuleResult:
    """Result from a lower bound of the share of dead groups, or, for 0/1 rewards, from what is left to gain."""
    at_ceiling, place = _place(quantities, reward)
    tests: list[RuleResult] = []
    evidence = _levels(dead, reward)
    if dead is not None:
        late = dead.level(LATE, DEAD)
        because = f"at least {late.value + DEAD:.0%} of groups have equal rewards, at a {place}"
        p = late.p_up if at_ceiling == solved else 1.0
        tests.append(RuleResult(p, because, evidence, dead.first_above(DEAD), missing=("dead_fraction",)))
    if solved and quantities.binary_rewards:
        top = reward.level(LATE, 1 - LEFT)
        because = f"at most {LEFT - top.value:.1%} of rollouts have anything to gain, at a {place}"
        onset = reward.first_above(1 - LEFT)
        tests.append(RuleResult(top.p_up, because, evidence, onset, missing=("dead_fraction",)))
    if not tests and quantities.column("dead_fraction") is not None:
        return cannot_tell(quantities.absence("dead_fraction"), "dead_fraction")
    if not tests:
        return cannot_tell("the log does not say which groups were dead", "dead_fraction")
    result = least_of(tests)
    if result.p < 0.5:
        return result
    return replace(result, because="this log gives only a lower bound of the share of dead groups")


def _place(quantities: Quantities, reward: MetricSeries) -> tuple[bool, str]:
    """Whether the late reward is at its ceiling, and the late reward in words."""
    level, ends = reward.level(LATE).value, quantities.reward_range
    if ends is None:
        return level > reward.level(EARLY).value, f"reward of {level:.3g}"
    share = (level - ends[0]) / (ends[1] - ends[0])
    return share > SOLVED, f"reward of {level:.3g}, where {ends[1]:.3g} is the most"


def _levels(dead: MetricSeries | None, reward: MetricSeries) -> tuple[Evidence, ...]:
    """Evidence of the late share of dead groups, where it is known, and of the late reward."""
    paid = reward.level(LATE)
    evidence = late_level(reward.name, paid.value, paid.se)
    if dead is None:
        return (evidence,)
    share = dead.level(LATE)
    return late_level(dead.name, share.value, share.se, f"limit {DEAD:g}"), evidence


SOURCE = "theory: advantage degeneracy, P(dead) = p^G + (1 − p)^G"

SATURATED = Rule(
    mode="saturated",
    needs=("dead_fraction", "reward"),
    statistic="late share of dead groups − limit, reward above its ceiling's share",
    threshold=f"dead > {DEAD:g} and reward above {SOLVED:g} of its range; "
    f"where rewards are 0 or 1 and dead groups are not logged, reward above {1 - LEFT:g}",
    source=SOURCE,
    advice="the prompts are solved: take harder ones, filter solved ones (dynamic sampling, DAPO), or stop",
    check=partial(check, solved=True),
    limit=True,
    costs="further steps on these prompts teach nothing",
)
STARVED = Rule(
    mode="starved",
    needs=("dead_fraction", "reward"),
    statistic="late share of dead groups − limit, reward below its ceiling's share",
    threshold=f"dead > {DEAD:g} and reward below {SOLVED:g} of its range",
    source=SOURCE,
    advice="take easier prompts, more rollouts per prompt or partial credit; check that the verifier can say yes",
    check=partial(check, solved=False),
    limit=True,
    beside="warning",
)
