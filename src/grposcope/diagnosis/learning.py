"""Rules about the reward: is there a signal, is it the right one, does anything come of it."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from grposcope.diagnosis.findings import Evidence, Rule, Verdict, unknown
from grposcope.diagnosis.noise import Tested
from grposcope.diagnosis.trends import EARLY, HALF_LATE, LATE, fit
from grposcope.diagnosis.view import LEAST, Series, View

DEAD = 0.85
"""Share of dead groups that leaves no signal to learn from."""

SOLVED = 0.8
"""Reward above this share of its range, with dead groups: solved rather than hopeless."""

FOLLOWS = 0.25
"""A held-out score that gains less than this share of what training reward gains does not follow it."""

STILL = 0.1
"""A change of reward below this share of its range is none."""

MASK = 0.1
"""Spread of the summed reward below this share of its components' spread: they cancel."""


def starved(view: View) -> Verdict:
    """Dead groups late above DEAD while the reward is not at its ceiling."""
    return _degenerate(view, solved=False)


def saturated(view: View) -> Verdict:
    """Dead groups late above DEAD with the reward at its ceiling."""
    return _degenerate(view, solved=True)


def _degenerate(view: View, solved: bool) -> Verdict:
    dead, reward = view.dead, view.get("reward")
    if dead is None or reward is None:
        return unknown("the log does not say which groups were dead", "dead_fraction" if reward else "reward")
    late, early = dead.tail.level(HALF_LATE, DEAD), dead.curve.level(EARLY, DEAD)
    level = reward.tail.level(HALF_LATE)
    evidence = [Evidence(f"{dead.name}, last {1 - LATE[0]:.0%}", late.value + DEAD, late.se, f"limit {DEAD:g}")]
    spread = view.reward_range
    if spread is None:
        at_top = reward.curve.change().p_up < 0.05
        place = f"reward {level.value:.3g}"
    else:
        share = (level.value - spread[0]) / (spread[1] - spread[0])
        at_top, place = share > SOLVED, f"reward {level.value:.3g} of at most {spread[1]:.3g}"
    evidence.append(Evidence(f"{reward.name}, last {1 - LATE[0]:.0%}", level.value, level.se))
    p = late.p_up if at_top == solved else 1.0
    because = f"{late.value + DEAD:.0%} of groups have equal rewards, {place}"
    never = not solved and early.value > 0
    if never and p < 0.5:
        because += ", and so from the start"
    unclear = "lower bound" in dead.name
    return Verdict(
        p, because if not unclear else "only a lower bound of the share of dead groups can be had from this log",
        tuple(evidence), None if p >= 0.5 else int(dead.steps[0]) if never else dead.first_above(DEAD),
        missing=("dead_fraction",) if unclear else (),
    )  # fmt: skip


def hacking(view: View) -> Verdict:
    """Training reward rises while the held-out score, a component or the task reward does not."""
    reward = view.get("reward")
    if reward is None:
        return unknown(view.lacks("reward"), "reward")
    tests = [*_heldout(view, reward), *_parts(view, reward), *_penalised(view)]
    missing = () if view.heldout is not None else ("evaluation",)
    if not tests:
        return unknown("nothing but the training reward is logged, which cannot betray itself", *missing)
    p, because, evidence, onset = min(tests, key=lambda test: test[0])
    p = min(1.0, p * len(tests))
    return Verdict(p, because, evidence, onset if p < 0.5 else None, missing=missing)


Test = tuple[float, str, tuple[Evidence, ...], int | None]


def _heldout(view: View, reward: Series) -> list[Test]:
    held = view.heldout
    if held is None:
        return []
    tests: list[Test] = []
    begin, span = reward.steps[0], reward.steps[-1] - reward.steps[0]
    for name, share in (("whole run", 0.0), ("second half", 0.5)):
        inside, rows = held.steps >= begin + share * span, reward.steps >= begin + share * span
        if inside.sum() < 4 or rows.sum() < LEAST:
            continue
        trained, scored = fit(reward.values[rows]).change(), _ends(held.values[inside])
        evidence = (
            Evidence(f"change of {reward.name}, {name}", trained.value, trained.se),
            Evidence(f"change of held-out {held.name}, {name}", scored.value, scored.se, "should follow"),
        )
        because = f"reward {_change(trained.value)} and held-out {held.name} {_change(scored.value)} over the {name}"
        onset = _parting(reward, held)
        tests.append((max(trained.p_up, scored.p_down), because, evidence, onset))
        if _same_scale(reward, held):
            lag = scored.value - FOLLOWS * trained.value
            error = math.hypot(scored.se, FOLLOWS * trained.se)
            behind = float(stats.t.cdf(lag / error, int(inside.sum()) - 2)) if error > 0 else float(lag >= 0)
            tests.append((max(trained.p_up, behind), because, evidence, onset))
    return tests


def _ends(values: np.ndarray) -> Tested:
    """Last minus first of a straight line through evaluations, which lie far enough apart for noise to be white."""
    x = np.linspace(-0.5, 0.5, len(values))
    slope, centre = float(x @ values / (x @ x)), float(values.mean())
    rest = values - centre - slope * x
    df = len(values) - 2
    error = math.sqrt(float(rest @ rest) / df / float(x @ x))
    if error <= 1e-9 * max(abs(centre), 1e-300):
        return Tested(slope, 0.0, float(slope <= 0), float(slope >= 0))
    up = float(stats.t.sf(slope / error, df))
    return Tested(slope, error, up, 1 - up)


def _same_scale(reward: Series, held: Series) -> bool:
    both = (reward, held)
    return all(series.values.min() >= 0 and series.values.max() <= 1 for series in both) or reward.name == held.name


def _parting(reward: Series, held: Series) -> int:
    """Step of the evaluation after which held-out falls behind: its best, smoothed over three."""
    smooth = np.convolve(np.pad(held.values, 1, "edge"), np.ones(3) / 3, "valid")
    return int(held.steps[int(np.argmax(smooth))])


def _change(value: float) -> str:
    return f"rose by {value:.2g}" if value > 0 else f"fell by {-value:.2g}"


def _parts(view: View, reward: Series) -> list[Test]:
    parts = view.components()
    if len(parts) < 2:
        return []
    total = reward.curve.change()
    tests: list[Test] = []
    for name, series in parts.items():
        own = series.curve.change()
        evidence = (
            Evidence("change of reward", total.value, total.se),
            Evidence(f"change of component {name}", own.value, own.se, "should not fall"),
        )
        because = f"reward {_change(total.value)} while its component {name} {_change(own.value)}"
        tests.append((max(total.p_up, own.p_down), because, evidence, series.onset() if own.p_down < 0.01 else None))
    return tests


def _penalised(view: View) -> list[Test]:
    task, trained = view.exact("reward"), view.exact("reward_after_kl")
    if task is None or trained is None or min(len(task), len(trained)) < LEAST:
        return []
    if np.array_equal(task.values, trained.values):
        return []
    own, after = task.curve.change(), trained.curve.change()
    evidence = (
        Evidence("change of reward", own.value, own.se),
        Evidence("change of reward_after_kl", after.value, after.se, "what is optimised"),
    )
    because = f"the task reward {_change(own.value)} while the reward after its KL penalty {_change(after.value)}"
    onset = task.onset() if own.p_down < 0.01 else None
    return [(max(own.p_down, after.p_up), because, evidence, onset)]


def decline(view: View) -> Verdict:
    """Reward late below early, or below the middle of the run."""
    reward = view.get("reward")
    if reward is None:
        return unknown(view.lacks("reward"), "reward")
    whole, lately = reward.curve.change(), reward.curve.change((0.4, 0.6))
    worse = min((whole, lately), key=lambda test: test.p_down)
    p = min(1.0, 2 * worse.p_down)
    since = "the beginning" if worse is whole else "the middle of the run"
    evidence = (Evidence(f"change of reward since {since}", worse.value, worse.se),)
    return Verdict(p, f"reward {_change(worse.value)} since {since}", evidence, reward.onset() if p < 0.5 else None)


def still(view: View) -> Verdict:
    """No part of the run differs from its beginning by STILL of the reward's range."""
    reward = view.get("reward")
    if reward is None:
        return unknown(view.lacks("reward"), "reward")
    if view.reward_range is not None:
        margin = STILL * (view.reward_range[1] - view.reward_range[0])
    elif (spread := view.get("reward_std")) is not None:
        margin = 2 * STILL * float(spread.curve.level(EARLY).value)
    else:
        return unknown("the range of the reward is not known", "reward_std")
    p, most = 0.0, 0.0
    for first in (0.2, 0.4, 0.6, 0.8):
        up, down = (reward.curve.change(last=(first, first + 0.2), minus=shift) for shift in (margin, -margin))
        p, most = max(p, up.p_down, down.p_up), max(most, abs(up.value + margin))
    evidence = (Evidence("largest change of reward over a fifth of the run", most, limit=f"counts from {margin:.3g}"),)
    steps = f"{int(reward.steps[-1] - reward.steps[0]):,} steps"
    return Verdict(p, f"reward stayed within {margin:.2g} of where it began, over {steps}", evidence)


def cancelling(view: View) -> Verdict:
    """Reward components vary while their sum does not."""
    parts = view.components("component_std")
    spread = view.get("reward_std")
    if len(view.components()) < 2 and len(parts) < 2:
        return unknown("fewer than two reward components are logged", "components")
    if len(parts) < 2 or spread is None:
        return unknown("the spread of the reward or of its components is not logged", "component_std")
    table = view.run.table
    squares = np.sum([table[f"component_std/{name}"] ** 2 for name in parts], axis=0)
    apart = table[spread.name] - MASK * np.sqrt(squares)
    apart = apart[np.isfinite(apart)]
    if len(apart) < LEAST or not np.nansum(squares):
        return unknown("too few rows have the spread of all components", "component_std")
    test, whole = fit(apart).level((0.0, 1.0)), spread.curve.level((0.0, 1.0))
    of = math.sqrt(float(np.nanmean(squares)))
    evidence = (Evidence(spread.name, whole.value, whole.se, f"limit {MASK:g} × the components' {of:.3g}"),)
    because = f"the components' rewards vary by {of:.2g} within the batch but their sum only by {whole.value:.2g}"
    return Verdict(test.p_down, because, evidence)


RULES = (
    Rule(
        "reward hacking", ("reward", "evaluation"),
        "p = the larger of: reward rises; and the held-out score (a component; the task reward before KL) falls, or "
        f"gains less than {FOLLOWS:g} × as much; least over whole run and second half, times the number of looks",
        "each part p < α; needs 4 evaluations in the part looked at",
        "theory: the proxy's fixed point drifts from the true one; test ours",
        "stop at the onset, read completions for what the verifier overlooks, mend it, raise the KL coefficient",
        hacking,
    ),
    Rule(
        "saturated", ("dead_fraction", "reward"),
        "late share of dead groups − limit, reward above its ceiling's share",
        f"dead > {DEAD:g} and reward above {SOLVED:g} of its range",
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
    Rule(
        "reward decline", ("reward",), "late − early and late − middle reward, least p-value × 2", "p < α",
        "ours", "go back to the checkpoint before the onset and lower the learning rate", decline,
    ),
    Rule(
        "no learning", ("reward",),
        "equivalence: in every fifth of the run |change since the beginning| < δ; p = largest of the one-sided tests",
        f"δ = {STILL:g} of the reward's range, or {2 * STILL:g} of its spread within groups; no verdict while the "
        "error exceeds about δ/2",
        "ours; two one-sided tests (Schuirmann 1987)",
        "raise the learning rate, check that gradients reach the weights, or take prompts with 20–80 % success", still,
    ),
)  # fmt: skip
