"""Saturated and starved: groups of equal rewards, which teach nothing, with the reward at its ceiling or not.

At success rate p a group of G rollouts is dead with probability p^G + (1 − p)^G.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Sign, Status, cannot_tell, measured
from grposcope.core.run import Run
from grposcope.maths.timeseries.change import EARLY, FIRST, LATE
from grposcope.signs import first_rows, onset, run_outcome
from grposcope.signs.group_signal import LEAST, signal
from grposcope.signs.quantities import SHORT, MetricSeries, Quantities
from grposcope.signs.tests import late_level, least_of
from grposcope.signs.thresholds import RISES, SOLVED

DEAD = 0.85
"""Share of dead groups that leaves no signal to learn from."""

HALF = 0.5
"""Share of dead groups that is a reason to see where no gain was shown: most of what is paid for teaches nothing."""

AFTER = "dead after a fall"
"""Fault of groups that died as the reward was lost: they are not what began it."""

ROSE = 0.1
"""Gain over loss of a reward that fell, below which it hardly rose."""

NEVER_ROSE = (
    "the reward hardly rose before it fell: first see that updates make paid rollouts likelier (the sign of advantages "
    "and loss, and advantages beside their own rollouts: write some rollouts with both and run grposcope verify), then "
    "lower the learning rate; go back to the first weights, since groups of equal rewards have no gradient"
)
"""What to do where groups died while a reward fell that had never risen."""

_NO_SIGNAL = 0.9
"""Share of dead groups in the first rows from which what the policy then does was hardly taught by any reward."""

_UNTAUGHT = (
    "one text", "gibberish", "repetition", "language mixing", "prompt decides the reward", "entropy collapse", "length",
    "answers shorten", "empty steps", "no learning", "zero loss",
)  # fmt: skip
"""Faults that follow where groups were dead from the first rows on."""

NEAR = 0.05
"""A share of dead groups this little below the limit is near it."""

EITHER = (
    "read some dead groups of a late step, since this log does not say which they are: where most are all right take "
    "harder prompts, where they are all wrong easier ones, partial credit or more rollouts per prompt, and where they "
    "are one answer see why the policy no longer varies"
)
"""What to do where the reward is not low, so that dead groups need not be those that nobody solves."""

_ALIKE_IN_GROUPS: Mapping[str, tuple[str, str]] = {
    "largest": (
        "most dead groups have the largest reward",
        "take harder prompts in the place of those that every rollout solves (dynamic sampling, DAPO)",
    ),
    "least": (
        "most dead groups have the least reward",
        "use easier prompts or partial credit; check that the verifier accepts a right answer",
    ),
    "between": (
        "most dead groups have one reward between the least and the largest",
        "read some groups with equal rewards: where their rollouts are one answer the policy no longer varies, so go "
        "back to a checkpoint with a higher entropy and sample hotter or add an entropy bonus; where they differ, the "
        "reward does not tell them apart",
    ),
}
"""Which reward most dead groups have -> a clause, and what to do."""

_BOTH = (
    "leave out prompts that all rollouts of a group solve, or take harder ones in their place (dynamic sampling, "
    "DAPO); for those that none solves take easier ones, more rollouts per prompt or partial credit, and check that "
    "the verifier accepts a right answer; where a prompt is always solved or never, see that its rollouts differ"
)
"""What to do where some dead groups are all right and some all wrong."""

_SOME = 0.1
"""Share of groups that are all right, and of those all wrong, from which on both are said."""

_AS_BINARY = 0.02
"""Share by which the spread of a batch may differ from that of rewards of 0 and 1 with the same mean."""

_ALIKE, _OF_FEW = 1e-3, 1.16
"""Difference of that ratio between rows, and the largest it may be, √(4/3), for one that is of small batches."""

_BELOW = 0.2
"""Held-out score below the training reward from which on few prompts may be what is solved."""

_BY_SIZE, _LARGER, _FEW_DEAD = 0.8, (4, 8, 16, 32), 0.25
"""Part of the share of dead groups that chance alone must make, at the mean success rate, for the size of groups to be
what is named; sizes to propose, and the share of dead groups that chance may make of the one that is."""

LEFT = 0.03
"""Share of rollouts that fail, of rewards that are 0 or 1, below which the prompts are solved whatever the groups."""


def _check(quantities: Quantities, solved: bool) -> Finding:
    """Late dead groups above DEAD, with the reward at its ceiling where `solved`, and below it otherwise."""
    dead, reward = quantities.dead_fraction, quantities.get("reward", SHORT)
    outcome = run_outcome.of_run(quantities.run)
    limit = DEAD if solved or outcome.well or outcome.direction == "up" else HALF
    if reward is None:
        return cannot_tell(quantities.absence("reward", SHORT), "reward")
    if dead is None or quantities.dead_fraction_is_bound:
        bound = _from_bounds(quantities, dead, reward, solved, limit)
        return replace(bound, remedy=_of_few_prompts(quantities, reward)) if solved and bound.p < 0.5 else bound
    if dead.values.max() > 1:
        return cannot_tell(f"{quantities.key(dead.name)} reaches {dead.values.max():.3g}, so it cannot be a share")
    fell = outcome.plain and not outcome.heldout
    finding = _saturated(quantities, dead, reward) if solved else _starved(quantities, dead, reward, limit, fell)
    of_groups = signal(quantities.run)
    of_shares = of_groups.evidence() if of_groups is not None else ()
    return replace(finding, evidence=(*_levels(dead, reward, limit), *of_shares))


def _saturated(quantities: Quantities, dead: MetricSeries, reward: MetricSeries) -> Finding:
    """Late dead groups above DEAD with the reward at its ceiling, without evidence."""
    late, early = dead.level(LATE, DEAD), dead.level(EARLY, DEAD)
    at_ceiling, place = _place(quantities, reward)
    p = late.p_up if at_ceiling else 1.0
    solved_at_first = quantities.at_ceiling(reward.level(EARLY).value)
    return measured(
        p,
        f"{late.value + DEAD:.0%} of groups have equal rewards, at a {place}",
        status=_near(at_ceiling, late.value + DEAD),
        brief=_brief(dead, early.value + DEAD, late.value + DEAD),
        begins=None if solved_at_first else partial(onset.since, dead, 1),
        past=p < 0.5,
        remedy=_of_few_prompts(quantities, reward),
    )


def _of_few_prompts(quantities: Quantities, reward: MetricSeries) -> str:
    """What to do where the prompts of training are solved and held-out ones are not, by _BELOW of a reward in [0, 1];
    empty for the fault's own."""
    held = run_outcome.of_heldout(quantities)
    if quantities.reward_range != (0.0, 1.0) or not held.known or not 0 <= held.end.value <= 1:
        return ""
    if held.end.value > reward.level(LATE).value - _BELOW:
        return ""
    return (
        f"print the prompts of a late batch: few prompts, or one that is drawn again and again, are solved while the "
        f"held-out score is {held.end.value:.0%}; where they are many, take other prompts, like those held out"
    )


def _starved(quantities: Quantities, dead: MetricSeries, reward: MetricSeries, limit: float, fell: bool) -> Finding:
    """Late dead groups above the limit with the reward below its ceiling, without evidence; or AFTER, where the reward
    fell plainly (`fell`) and they were none of its beginning."""
    late, early = dead.level(LATE, limit), dead.level(EARLY, limit)
    at_ceiling, place = _place(quantities, reward)
    p = 1.0 if at_ceiling else late.p_up
    solved_at_first = quantities.at_ceiling(reward.level(EARLY).value)
    from_the_start = early.value > 0 and not (solved_at_first or fell)
    because = f"{late.value + limit:.0%} of groups have equal rewards, at a {place}"
    if p < 0.5 and from_the_start:
        because += f"; at the start {early.value + limit:.0%}"
    elif p < 0.5 and early.value > 0 and solved_at_first:
        because += "; at the start all answers were right"
    after = fell and not from_the_start
    said, remedy = _which_are_dead(quantities, late.value + limit, reward) if p < 0.5 else ("", "")
    because += said
    return measured(
        p,
        because,
        fault=AFTER if after else "",
        status=_near(not at_ceiling, late.value + limit),
        brief=_brief(dead, early.value + limit, late.value + limit),
        begins=None if from_the_start or solved_at_first else partial(onset.since, dead, 1),
        past=p < 0.5,
        explains=_untaught(quantities) if from_the_start and dead.level(FIRST).value >= _NO_SIGNAL else (),
        remedy=_after_a_fall(quantities) if after else remedy or _by_level(quantities, reward),
    )


def _untaught(quantities: Quantities) -> tuple[str, ...]:
    """What follows from groups that were dead from the first rows on: cut completions only where most had ended."""
    cut = quantities.get("truncated", SHORT)
    most_are_cut = cut is not None and cut.level(EARLY).value >= HALF
    return tuple(fault for fault in _UNTAUGHT if not (most_are_cut and fault == "length"))


def _which_are_dead(quantities: Quantities, dead: float, reward: MetricSeries) -> tuple[str, str]:
    """What is known of the dead groups, `dead` of all late ones: clauses, and what to do; empty where nothing is."""
    right, wrong = _right_and_wrong(quantities, dead, reward)
    both = min(right, wrong) >= _SOME
    least = [math.floor(100 * share) for share in (right, wrong)]
    said = f"; so at least {least[0]}% of groups are all right, and at least {least[1]}% all wrong" if both else ""
    by_size, draw = _of_small_groups(quantities, dead, reward)
    which, read = _ALIKE_IN_GROUPS.get(_reward_of_dead(quantities.run), ("", ""))
    return said + (by_size or (f"; {which}" if which else "")), draw or (_BOTH if both else read)


def _reward_of_dead(run: Run) -> str:
    """Which reward most dead groups of the last fifth of the steps have, of all rewards of the run: "least", "largest"
    or "between"; empty where the log has no such groups, or none of these is most."""
    groups = run.groups
    if len(groups) < LEAST:
        return ""
    least = np.minimum.reduceat(groups.rewards, groups.offsets[:-1])
    largest = np.maximum.reduceat(groups.rewards, groups.offsets[:-1])
    steps = np.unique(groups.step)
    late = groups.step >= steps[int(LATE[0] * len(steps))]
    rewards = least[late & (groups.sizes >= 2) & (least == largest)]
    if len(rewards) < LEAST:
        return ""
    bottom, top = float(np.nanmin(least)), float(np.nanmax(largest))
    shares = {"least": rewards == bottom, "largest": rewards == top, "between": (bottom < rewards) & (rewards < top)}
    return next((name for name, those in shares.items() if those.mean() > HALF), "")


def _of_small_groups(quantities: Quantities, dead: float, reward: MetricSeries) -> tuple[str, str]:
    """How many groups of rewards of 0 and 1 would be dead by chance alone, at their size and a larger one, as a clause,
    and what to do; empty where chance is not most of it, or where no size of _LARGER has fewer than _FEW_DEAD."""
    size, rate = quantities.group_size, reward.level(LATE).value
    if size is None or size < 2 or not 0 < rate < 1 or not _are_binary(quantities, reward):
        return "", ""
    by_chance = {each: rate**each + (1 - rate) ** each for each in (size, *_LARGER)}
    larger = next((each for each in _LARGER if each > size and by_chance[each] < _FEW_DEAD), None)
    if larger is None or by_chance[size] < _BY_SIZE * dead:
        return "", ""
    because = (
        f"; where each rollout is right with a chance of {rate:.2g}, {by_chance[size]:.0%} of groups of {size} have "
        f"equal rewards, and {by_chance[larger]:.0%} of groups of {larger}"
    )
    remedy = (
        f"draw {larger} rollouts per prompt in place of {size}, with fewer prompts in a batch if need be; easier "
        "prompts or partial credit help as well"
    )
    return because, remedy


def _are_binary(quantities: Quantities, reward: MetricSeries) -> bool:
    """Whether rewards are known to be 0 or 1, as they are where their spread in a batch is the largest there can be,
    with ddof 0 or with ddof 1 in batches of one size."""
    spread = quantities.column("reward_std_batch")
    if quantities.binary_rewards:
        return True
    if spread is None or reward.values.min() < 0 or reward.values.max() > 1:
        return False
    _, a, b = np.intersect1d(spread.steps, reward.steps, return_indices=True)
    largest = np.sqrt(reward.values[b] * (1 - reward.values[b]))
    ratios = spread.values[a][largest > 0] / largest[largest > 0]
    if not len(ratios):
        return False
    middle = float(np.median(ratios))
    alike = bool(np.median(np.abs(ratios - middle)) <= _ALIKE) and 1 <= middle <= _OF_FEW
    return bool(np.median(np.abs(ratios - 1)) <= _AS_BINARY) or alike


def _right_and_wrong(quantities: Quantities, dead: float, reward: MetricSeries) -> tuple[float, float]:
    """Shares of groups that are all right, and all wrong, at least, where rewards are 0 or 1; zeros where they are not
    known to be.

    Of the mean reward m the live groups, 1 − dead of all, have 1 − dead at most: the rest is of groups all right; and
    no more than m of the dead ones are all right.
    """
    if not _are_binary(quantities, reward):
        return 0.0, 0.0
    paid = reward.level(LATE).value
    return max(paid - (1 - dead), 0.0), max(dead - paid, 0.0)


def _after_a_fall(quantities: Quantities) -> str:
    """What to do where groups died as the reward fell; empty for the fault's own, where it had risen before."""
    outcome = run_outcome.of_reward(quantities)
    gain = outcome.gain if math.isfinite(outcome.gain) else 0.0
    lost = outcome.start.value - outcome.end.value
    return NEVER_ROSE if outcome.fate == "fell" and gain < ROSE * lost else ""


def _near(in_place: bool, share: float) -> Status:
    """Whether a late share of dead groups is near DEAD, with the reward where the fault has it."""
    return "possible" if in_place and share > DEAD - NEAR else "excluded"


def _by_level(quantities: Quantities, reward: MetricSeries) -> str:
    """EITHER; empty, for the fault's own, where the late reward is known to be in the lower half of its range."""
    ends = quantities.reward_range
    return "" if ends is not None and reward.level(LATE).value < sum(ends) / 2 else EITHER


def _brief(dead: MetricSeries, early: float, late: float) -> str:
    """The share of dead groups in few words; a count of steps where it is all of them."""
    whole = int((dead.values >= 1).sum())
    if whole == len(dead):
        return f"rewards within every group are equal in all {len(dead)} {dead.rows}"
    return f"groups with equal rewards {early:.0%} → {late:.0%}"


def _from_bounds(
    quantities: Quantities, dead: MetricSeries | None, reward: MetricSeries, solved: bool, limit: float
) -> Finding:
    """Result from a lower bound of the share of dead groups, or, for 0/1 rewards, from what is left to gain."""
    at_ceiling, where = _place(quantities, reward)
    tests: list[Finding] = []
    evidence = _levels(dead, reward, limit)
    if dead is not None:
        late = dead.level(LATE, limit)
        which = "all groups" if late.value + limit >= 1 else f"at least {late.value + limit:.0%} of groups"
        because = f"{which} have equal rewards, at a {where}"
        p = late.p_up if at_ceiling == solved else 1.0
        brief = f"{which} have equal rewards"
        begins = None if dead.level(EARLY, limit).value > 0 else partial(onset.since, dead, 1)
        tests.append(
            measured(p, because, evidence, missing=("dead_fraction",), brief=brief, begins=begins, past=p < 0.5)
        )
    if solved and quantities.binary_rewards:
        top = reward.level(LATE, 1 - LEFT)
        because = f"at most {LEFT - top.value:.1%} of rollouts can still improve, at a {where}"
        tests.append(measured(top.p_up, because, evidence, missing=("dead_fraction",), brief=because))
    if not tests and quantities.column("dead_fraction") is not None:
        return cannot_tell(quantities.absence("dead_fraction"), "dead_fraction")
    if not tests:
        return cannot_tell("the log does not say which groups were dead", "dead_fraction")
    result = least_of(tests)
    if result.p < 0.5:
        return result
    return replace(result, because="the log gives only a lower bound on the share of dead groups")


def _place(quantities: Quantities, reward: MetricSeries) -> tuple[bool, str]:
    """Whether the late reward is at its ceiling, and the late reward in words."""
    level, ends = reward.level(LATE).value, quantities.reward_range
    if ends is None:
        return reward.change(EARLY, LATE).p_up < RISES, f"reward of {level:.3g}"
    top = quantities.largest_reward
    of = "" if top is None else f" out of {top:.3g}"
    return quantities.at_ceiling(level), f"reward of {level:.3g}{of}"


def _levels(dead: MetricSeries | None, reward: MetricSeries, limit: float) -> tuple[Sign, ...]:
    """Sign of the late share of dead groups, where it is known, with its limit, and of the late reward."""
    paid = reward.level(LATE)
    evidence = late_level(reward.name, paid.value, paid.se)
    if dead is None:
        return (evidence,)
    share = dead.level(LATE)
    return late_level(dead.name, share.value, share.se, f"limit {limit:g}"), evidence


SOURCE = "theory: advantage degeneracy, P(dead) = p^G + (1 − p)^G"

SATURATED = LogTest(
    "saturated",
    partial(_check, solved=True),
    needs=("dead_fraction", "reward"),
    statistic="late share of dead groups − limit, tested only if the reward is near its ceiling",
    threshold=f"dead > {DEAD:g} and reward above {SOLVED:g} of its range; "
    f"where rewards are 0 or 1 and dead groups are not logged, reward above {1 - LEFT:g}",
    limit=True,
)
STARVED = LogTest(
    "starved",
    partial(_check, solved=False),
    needs=("dead_fraction", "reward"),
    statistic="late share of dead groups − limit, tested only if the reward is below its ceiling",
    threshold=f"dead > {DEAD:g}, or > {HALF:g} where no gain was shown, and reward below {SOLVED:g} of its range",
    limit=True,
    early=first_rows.every_group_dead,
)
