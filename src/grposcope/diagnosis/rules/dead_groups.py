"""Rules about the signal in the rewards: groups without a spread, and components that cancel in the sum."""

from __future__ import annotations

import math

import numpy as np

from grposcope.diagnosis.findings import Evidence, Rule, Verdict, unknown
from grposcope.diagnosis.group_signal import signal
from grposcope.diagnosis.quantities import SHORT, Series, View
from grposcope.timeseries import level as levels
from grposcope.timeseries.change import EARLY, LATE

DEAD = 0.85
"""Share of dead groups that leaves no signal to learn from."""

SOLVED = 0.8
"""Reward above this share of its range, with dead groups: solved rather than hopeless."""

LEFT = 0.03
"""Share of rollouts that fail, of rewards that are 0 or 1, below which the prompts are solved whatever the groups."""

MASK = 0.1
"""Spread of the summed reward below this share of its components' spread: they cancel."""


def starved(view: View) -> Verdict:
    """Dead groups late above DEAD while the reward is not at its ceiling."""
    return _degenerate(view, solved=False)


def saturated(view: View) -> Verdict:
    """Dead groups late above DEAD with the reward at its ceiling."""
    return _degenerate(view, solved=True)


def _degenerate(view: View, solved: bool) -> Verdict:
    dead, reward = view.dead, view.get("reward", SHORT)
    if reward is None:
        return unknown("the log does not say which groups were dead", "reward")
    if dead is None or "lower bound" in dead.name:
        return _bounded(view, dead, reward, solved)
    late, early = dead.level(LATE, DEAD), dead.level(EARLY, DEAD)
    at_top, place = _place(view, reward)
    p = late.p_up if at_top == solved else 1.0
    because = f"{late.value + DEAD:.0%} of groups have equal rewards, {place}"
    never = not solved and early.value > 0
    if never and p < 0.5:
        because += ", and so from the start"
    evidence = _levels(dead, reward)
    if (carried := signal(view.run)) is not None:
        evidence += carried.evidence()
    onset = None if p >= 0.5 else int(dead.steps[0]) if never else dead.first_above(DEAD)
    return Verdict(p, because, tuple(evidence), onset)


def _bounded(view: View, dead: Series | None, reward: Series, solved: bool) -> Verdict:
    """From a lower bound of the share of dead groups, or, for 0/1 rewards, from what is left to gain."""
    at_top, place = _place(view, reward)
    tests: list[tuple[float, str, int | None]] = []
    if dead is not None:
        late = dead.level(LATE, DEAD)
        because = f"at least {late.value + DEAD:.0%} of groups have equal rewards, {place}"
        tests.append((late.p_up if at_top == solved else 1.0, because, dead.first_above(DEAD)))
    if solved and view.binary:
        top = reward.level(LATE, 1 - LEFT)
        because = f"at most {-top.value + LEFT:.1%} of rollouts have anything to gain, {place}"
        tests.append((top.p_up, because, reward.first_above(1 - LEFT)))
    if not tests:
        return unknown("the log does not say which groups were dead", "dead_fraction")
    p, because, onset = min(tests, key=lambda test: test[0])
    p = min(1.0, p * len(tests))
    if p >= 0.5:
        because, onset = "only a lower bound of the share of dead groups can be had from this log", None
    return Verdict(p, because, tuple(_levels(dead, reward)), onset, missing=("dead_fraction",))


def _place(view: View, reward: Series) -> tuple[bool, str]:
    """Whether the late reward is at its ceiling, and where it is, in words."""
    level, spread = reward.level(LATE).value, view.reward_range
    if spread is None:
        return level > reward.level(EARLY).value, f"reward {level:.3g}"
    share = (level - spread[0]) / (spread[1] - spread[0])
    return share > SOLVED, f"reward {level:.3g} of at most {spread[1]:.3g}"


def _levels(dead: Series | None, reward: Series) -> list[Evidence]:
    limits = [(dead, f"limit {DEAD:g}"), (reward, "")]
    found = [(series.name, series.level(LATE), limit) for series, limit in limits if series is not None]
    return [Evidence(f"{name}, last {1 - LATE[0]:.0%}", t.value, t.se, limit) for name, t, limit in found]


def cancelling(view: View) -> Verdict:
    """Reward components vary while their sum does not."""
    parts = view.components("component_std")
    spread = view.get("reward_std", SHORT)
    if len(view.components()) < 2 and len(parts) < 2:
        return unknown("fewer than two reward components are logged", "components")
    if len(parts) < 2 or spread is None:
        return unknown("the spread of the reward or of its components is not logged", "component_std")
    table = view.run.table
    squares = np.sum([table[f"component_std/{name}"] ** 2 for name in parts], axis=0)
    apart = table[spread.name] - MASK * np.sqrt(squares)
    apart = apart[np.isfinite(apart)]
    if len(apart) < SHORT or not np.nansum(squares):
        return unknown("too few rows have the spread of all components", "component_std")
    test, whole = levels.level(apart, (0.0, 1.0)), spread.level((0.0, 1.0))
    of = math.sqrt(float(np.nanmean(squares)))
    evidence = (Evidence(spread.name, whole.value, whole.se, f"limit {MASK:g} × the components' {of:.3g}"),)
    because = f"the components' rewards vary by {of:.2g} within the batch but their sum only by {whole.value:.2g}"
    return Verdict(test.p_down, because, evidence)


RULES = (
    Rule(
        "saturated", ("dead_fraction", "reward"),
        "late share of dead groups − limit, reward above its ceiling's share",
        f"dead > {DEAD:g} and reward above {SOLVED:g} of its range; "
        f"where rewards are 0 or 1 and dead groups are not logged, reward above {1 - LEFT:g}",
        "theory: advantage degeneracy, P(dead) = p^G + (1 − p)^G",
        "the prompts are solved: take harder ones, filter solved ones (dynamic sampling, DAPO), or stop", saturated,
    ),
    Rule(
        "starved", ("dead_fraction", "reward"),
        "late share of dead groups − limit, reward below its ceiling's share",
        f"dead > {DEAD:g} and reward below {SOLVED:g} of its range",
        "theory: advantage degeneracy, P(dead) = p^G + (1 − p)^G",
        "take easier prompts, more rollouts per prompt or partial credit; check that the verifier can say yes",
        starved,
    ),
    Rule(
        "cancelling components", ("component_std", "reward_std"),
        "spread of the reward − ρ × root of the sum of squared spreads of its components",
        f"below {MASK:g} ×", "ours", "look at signs and weights of the reward functions; normalise each before the sum",
        cancelling,
    ),
)  # fmt: skip
