"""Reward and held-out score stay where they began.

What it is
    Updates do not reach the policy or are too small, the prompts give no signal, or the run is too short to show a
    gain.
How it shows
    In every fifth of the run the change since the beginning is smaller than what would matter (two one-sided
    tests), and no clear rise is seen. Where the KL grows all the same, the policy moves without learning.
What it does to the gradient
    It may be there and too small, or without effect on what is sampled.
What to do
    In this order: is there a gradient; do weights move (KL); do the moved weights draw the rollouts; can the grader
    pay a right answer; are groups mixed; then a higher learning rate, or prompts that 20 to 80 % of rollouts solve.
What decides
    The first of these questions that is answered with no.
Sources
    Schuirmann 1987, for the test
    method of this project
"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, measured
from grposcope.core.text import number
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs import run_outcome
from grposcope.signs.moves_alone import FAR, TIMES, distance, moves_alone
from grposcope.signs.present import DISJOINT
from grposcope.signs.quantities import SHORT, Quantities
from grposcope.signs.rewards_differ import rewards_differ
from grposcope.signs.tests import fell

STILL = 0.1
"""A change of reward below this share of its range is none."""

OF_OTHERS = (
    "train twenty steps with a reward that is known from the text, such as its length: where the length does not "
    "follow, advantages belong to other completions than they are multiplied with (the order of ranks, a shuffle, a "
    "sort by length) or their sign changes; where it follows, the reward is too noisy for these steps: more rollouts a "
    "step, a lower learning rate"
)
"""What to do where the policy moves and the reward does not."""

SURE = 0.05
"""Chance of the fault above which it is not said to be there."""


def _check(quantities: Quantities) -> Finding:
    """No fifth of the run differs from the beginning by STILL of the reward's range, nor did the reward rise."""
    reward = quantities.require("reward")
    margin = quantities.reward_margin(STILL)
    if margin is None:
        return cannot_tell("the range of the reward is not known", "reward_std")
    p, most = 0.0, 0.0
    for first in (0.2, 0.4, 0.6, 0.8):
        fifth = (first, first + 0.2)
        up, down = (reward.change(EARLY, fifth, minus=d) for d in (margin, -margin))
        p, most = max(p, up.p_down, down.p_up), max(most, abs(up.value + margin))
    limit = f"counts from {margin:.3g}"
    evidence = (
        Sign(f"largest change of {reward.name} over a fifth of the run", most, limit=limit, column=reward.name),
    )
    steps = f"{int(reward.steps[-1] - reward.steps[0]):,} steps"
    if p >= 0.5:
        return measured(p, f"the reward changed by {most:.2g} over {steps}", evidence)
    if (rewarded := run_outcome.of_reward(quantities)).rose:
        because = f"the reward {fell(rewarded)} over {steps}: little, but more than noise"
        return measured(1.0, because, evidence)
    seen = reward.present  # levels of rows, of which a few at first may be the best
    if -seen.loss.value >= margin and (seen.fall is not None or DISJOINT * seen.loss.p_down < SURE):
        return measured(1.0, f"the reward {fell(rewarded)}", evidence)
    if (held := run_outcome.of_heldout(quantities)).rose:
        because = f"the held-out score {fell(held)}, whatever the reward of the prompts that are drawn"
        return measured(1.0, because, evidence)
    if p > SURE:
        because = f"the reward changed by {most:.2g} at most over {steps}, and {margin:.2g} or more is not ruled out"
        return measured(p, because, evidence)
    because = f"the reward changed by {most:.2g} at most, less than {margin:.2g}, over {steps}"
    parts = {} if quantities.run.in_turn else quantities.run.scopes
    moved = {name: run_outcome.of_reward(Quantities(part)).direction for name, part in parts.items()}
    if {"up", "down"} & {*moved.values()}:
        return measured(1.0, f"{because}, and rewards of single environments changed", evidence)
    outcome = run_outcome.of_run(quantities.run)
    if outcome.heldout and outcome.direction == "up":
        return measured(1.0, f"{because}, and held-out {outcome.name} rose", evidence)
    if away := _goes_away(quantities):
        return measured(
            p, f"{because}, while {away}", evidence, brief=away, grades=("note", "warning"), remedy=OF_OTHERS
        )
    if (spread := quantities.least_spread) is not None and _MIDDLE < seen.last.value < 1 - _MIDDLE:
        alike = f"rewards of a group that differ do so by {number(spread)}, about a mean of {number(seen.last.value)}"
        because += f", while {alike}: what grades hardly tells answers apart"
        brief = f"rewards differ by {number(spread)}"
        return measured(p, because, evidence, brief=brief, grades=("note", "warning"), remedy=_OF_A_JUDGE)
    return measured(p, because, evidence, brief="no gain")


_MIDDLE = 0.1
"""Distance of a mean reward from 0 and from 1 from which small differences are none of its ceiling."""

_OF_A_JUDGE = (
    "have ten answers of a prompt graded, right ones and wrong ones among them: a grader that gives them about the "
    "same teaches nothing. Ask it for points of a rubric, or to rank the answers of a group"
)
"""What to do where all rewards are about their mean."""


def _goes_away(quantities: Quantities) -> str:
    """That the policy goes far from its start where rewards differ within groups, as a clause; empty where not."""
    kl, advantages = distance(quantities), quantities.column("advantage_max")
    differ = "groups" in rewards_differ(quantities) or (advantages is not None and np.median(advantages.values) > 0)
    if kl is None or not differ or moves_alone(quantities) or _other_weights(quantities):
        return ""
    first, last = kl.level(EARLY).value, kl.level(LATE).value
    if last < FAR or last < TIMES * float(np.median(kl.values[:SHORT])):
        return ""
    return f"{quantities.went(kl.name, first, last)} nats: the policy moves, and the reward does not follow"


def _other_weights(quantities: Quantities) -> bool:
    """Whether sampler and trainer part as the policy moves, so that the rollouts are not its own."""
    columns = [quantities.column(name) for name in quantities.run.table if name.startswith("mismatch/")]
    far = [series for series in columns if series is not None and len(series) >= SHORT and series.values.min() > 0]
    return any(series.level(LATE).value > TIMES * series.level(EARLY).value for series in far)


FAULT = Fault(
    name="no learning",
    rank=250,
    remedy="raise the learning rate, check that gradients reach the weights, or use prompts that 20 to 80% "
    "of rollouts solve",
    instead="note",
    minor=True,
    log=LogTest(
        "no learning",
        _check,
        needs=("reward",),
        statistic="equivalence test: in every fifth of the run |change since the beginning| < δ; p = largest of "
        "the one-sided tests",
        threshold=f"δ = {STILL:g} of the reward's range, or {2 * STILL:g} of its spread within groups; no verdict "
        "while the error exceeds about δ/2",
    ),
)
