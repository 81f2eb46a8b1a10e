"""Saturated and starved: groups of equal rewards, which teach nothing, with the reward at its ceiling or not.

At success rate p a group of G rollouts is dead with probability p^G + (1 − p)^G.
"""

from __future__ import annotations

from grposcope.diagnosis.findings import Evidence, Rule, RuleResult, cannot_tell
from grposcope.diagnosis.group_signal import signal
from grposcope.diagnosis.quantities import SHORT, MetricSeries, Quantities
from grposcope.timeseries.change import EARLY, LATE

DEAD = 0.85
"""Share of dead groups that leaves no signal to learn from."""

SOLVED = 0.8
"""Reward above this share of its range, with dead groups: solved rather than hopeless."""

LEFT = 0.03
"""Share of rollouts that fail, of rewards that are 0 or 1, below which the prompts are solved whatever the groups."""


def starved(quantities: Quantities) -> RuleResult:
    """Late dead groups above DEAD while the reward is not at its ceiling."""
    return _check(quantities, solved=False)


def saturated(quantities: Quantities) -> RuleResult:
    """Late dead groups above DEAD with the reward at its ceiling."""
    return _check(quantities, solved=True)


def _check(quantities: Quantities, solved: bool) -> RuleResult:
    dead, reward = quantities.dead_fraction, quantities.get("reward", SHORT)
    if reward is None:
        return cannot_tell("the log does not say which groups were dead", "reward")
    if dead is None or quantities.dead_fraction_is_bound:
        return _from_bounds(quantities, dead, reward, solved)
    late, early = dead.level(LATE, DEAD), dead.level(EARLY, DEAD)
    at_ceiling, place = _place(quantities, reward)
    p = late.p_up if at_ceiling == solved else 1.0
    because = f"{late.value + DEAD:.0%} of groups have equal rewards, at a {place}"
    from_the_start = not solved and early.value > 0
    if from_the_start and p < 0.5:
        because += ", and so from the start"
    evidence = _levels(dead, reward)
    if (of_groups := signal(quantities.run)) is not None:
        evidence += of_groups.evidence()
    onset = None if p >= 0.5 else int(dead.steps[0]) if from_the_start else dead.first_above(DEAD)
    return RuleResult(p, because, tuple(evidence), onset)


def _from_bounds(quantities: Quantities, dead: MetricSeries | None, reward: MetricSeries, solved: bool) -> RuleResult:
    """Result from a lower bound of the share of dead groups, or, for 0/1 rewards, from what is left to gain."""
    at_ceiling, place = _place(quantities, reward)
    tests: list[tuple[float, str, int | None]] = []
    if dead is not None:
        late = dead.level(LATE, DEAD)
        because = f"at least {late.value + DEAD:.0%} of groups have equal rewards, at a {place}"
        tests.append((late.p_up if at_ceiling == solved else 1.0, because, dead.first_above(DEAD)))
    if solved and quantities.binary_rewards:
        top = reward.level(LATE, 1 - LEFT)
        because = f"at most {LEFT - top.value:.1%} of rollouts have anything to gain, at a {place}"
        tests.append((top.p_up, because, reward.first_above(1 - LEFT)))
    if not tests:
        return cannot_tell("the log does not say which groups were dead", "dead_fraction")
    p, because, onset = min(tests, key=lambda test: test[0])
    p = min(1.0, p * len(tests))
    if p >= 0.5:
        because, onset = "this log gives only a lower bound of the share of dead groups", None
    return RuleResult(p, because, tuple(_levels(dead, reward)), onset, missing=("dead_fraction",))


def _place(quantities: Quantities, reward: MetricSeries) -> tuple[bool, str]:
    """Whether the late reward is at its ceiling, and the late reward in words."""
    level, ends = reward.level(LATE).value, quantities.reward_range
    if ends is None:
        return level > reward.level(EARLY).value, f"reward of {level:.3g}"
    share = (level - ends[0]) / (ends[1] - ends[0])
    return share > SOLVED, f"reward of {level:.3g}, where {ends[1]:.3g} is the most"


def _levels(dead: MetricSeries | None, reward: MetricSeries) -> list[Evidence]:
    limits = [(dead, f"limit {DEAD:g}"), (reward, "")]
    late = [(series.name, series.level(LATE), limit) for series, limit in limits if series is not None]
    return [Evidence(f"{name}, last {1 - LATE[0]:.0%}", t.value, t.se, limit, name) for name, t, limit in late]


SOURCE = "theory: advantage degeneracy, P(dead) = p^G + (1 − p)^G"

SATURATED = Rule(
    mode="saturated",
    needs=("dead_fraction", "reward"),
    statistic="late share of dead groups − limit, reward above its ceiling's share",
    threshold=f"dead > {DEAD:g} and reward above {SOLVED:g} of its range; "
    f"where rewards are 0 or 1 and dead groups are not logged, reward above {1 - LEFT:g}",
    source=SOURCE,
    advice="the prompts are solved: take harder ones, filter solved ones (dynamic sampling, DAPO), or stop",
    check=saturated,
)
STARVED = Rule(
    mode="starved",
    needs=("dead_fraction", "reward"),
    statistic="late share of dead groups − limit, reward below its ceiling's share",
    threshold=f"dead > {DEAD:g} and reward below {SOLVED:g} of its range",
    source=SOURCE,
    advice="take easier prompts, more rollouts per prompt or partial credit; check that the verifier can say yes",
    check=starved,
)
