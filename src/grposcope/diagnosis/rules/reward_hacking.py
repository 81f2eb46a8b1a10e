"""Is the reward that rises the right one? Held against scores that are not trained on."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtr

from grposcope.diagnosis.findings import Evidence, Rule, Verdict, moved, unknown
from grposcope.diagnosis.quantities import EVALUATIONS, LEAST, Series, View
from grposcope.timeseries.change import EARLY, fit
from grposcope.timeseries.noise import Array, Contrast

FOLLOWS = 0.25
"""A score that gains less than this share of what training reward gains does not follow it."""

EXACT = 1e-3
"""Share of the reward's spread that rounding may hide."""

FULL = 0.8
"""A score in [0, 1] that begins above this has no room to follow."""


def hacking(view: View) -> Verdict:
    """Training reward rises while the held-out score, a component or the task reward does not."""
    reward = view.get("reward")
    if reward is None:
        return unknown(view.lacks("reward"), "reward")
    tests = [*_heldout(view, reward), *_monitors(view, reward), *_parts(view, reward), *_penalised(view)]
    missing = () if view.heldout is not None else ("evaluation",)
    if not tests and len(view.run.evaluations):
        return unknown(f"too few held-out evaluations to tell a trend: {EVALUATIONS} are needed", *missing)
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
        if inside.sum() < EVALUATIONS or rows.sum() < LEAST:
            continue
        trained, scored = fit(reward.values[rows]).change(), _ends(held.values[inside])
        evidence = (
            Evidence(f"change of {reward.name}, {name}", trained.value, trained.se),
            Evidence(f"change of held-out {held.name}, {name}", scored.value, scored.se, "should follow"),
        )
        because = f"reward {moved(trained.value)} and held-out {held.name} {moved(scored.value)} over the {name}"
        onset = _parting(reward, held)
        tests.append((max(trained.p_up, scored.p_down), because, evidence, onset))
        if _same_scale(reward, held):
            lag = scored.value - FOLLOWS * trained.value
            error = math.hypot(scored.se, FOLLOWS * trained.se)
            behind = float(stdtr(int(inside.sum()) - 2, lag / error)) if error > 0 else float(lag >= 0)
            tests.append((max(trained.p_up, behind), because, evidence, onset))
    return tests


def _ends(values: np.ndarray) -> Contrast:
    """Last minus first of a straight line through evaluations, which lie far enough apart for noise to be white."""
    x = np.linspace(-0.5, 0.5, len(values))
    slope, centre = float(x @ values / (x @ x)), float(values.mean())
    rest = values - centre - slope * x
    df = len(values) - 2
    error = math.sqrt(float(rest @ rest) / df / float(x @ x))
    if error <= 1e-9 * max(abs(centre), 1e-300):
        return Contrast(slope, 0.0, float(slope <= 0), float(slope >= 0))
    return Contrast(slope, error, float(stdtr(df, -slope / error)), float(stdtr(df, slope / error)))


def _same_scale(reward: Series, held: Series) -> bool:
    both = (reward, held)
    return all(series.values.min() >= 0 and series.values.max() <= 1 for series in both) or reward.name == held.name


def _parting(reward: Series, held: Series) -> int:
    """Step of the evaluation after which held-out falls behind: its best, smoothed over three."""
    smooth = np.convolve(np.pad(held.values, 1, "edge"), np.ones(3) / 3, "valid")
    return int(held.steps[int(np.argmax(smooth))])


def _monitors(view: View, reward: Series) -> list[Test]:
    """Components that are logged and not trained on: somebody's way to watch the true score."""
    tests: list[Test] = []
    for name, series in untrained(view, reward).items():
        if not _same_scale(reward, series) or series.level(EARLY).value > FULL:
            continue
        trained, scored = reward.curve.change(), series.curve.change()
        both = np.isin(reward.steps, series.steps)
        behind = fit(series.values[np.isin(series.steps, reward.steps)] - FOLLOWS * reward.values[both]).change()
        evidence = (
            Evidence("change of reward", trained.value, trained.se),
            Evidence(f"change of {name}, which has no weight in it", scored.value, scored.se, "should follow"),
        )
        because = (
            f"reward {moved(trained.value)} while {name}, which is logged beside it and has no weight in it, "
            f"{moved(scored.value)}"
        )
        tests.append((max(trained.p_up, behind.p_down), because, evidence, reward.onset()))
    return tests


def untrained(view: View, reward: Series) -> dict[str, Series]:
    """The components that the record proves to have no weight in the reward.

    That is: another component *is* the reward; or the reward is a weighted sum of all to EXACT of its spread, with one
    solution, in which theirs is 0.
    """
    parts = {name: series for name, series in view.components().items() if len(series) >= LEAST}
    table = view.run.table
    target = table[reward.name]
    columns = [table[f"component/{name}"] for name in parts]
    rows = np.isfinite(np.array([target, *columns])).all(0)
    if len(parts) < 2 or rows.sum() < LEAST or np.ptp(target[rows]) == 0:
        return {}
    x, y = np.array(columns)[:, rows], target[rows]
    near = EXACT * y.std()
    equal = np.array([bool(np.abs(part - y).max() <= near) for part in x])
    if equal.any():
        return {name: series for (name, series), same in zip(parts.items(), equal, strict=True) if not same}
    centred = x - x.mean(1, keepdims=True)
    weights, _, rank, _ = np.linalg.lstsq(centred.T, y - y.mean(), rcond=1e-9)
    if rank < len(parts) or np.abs(weights @ centred - (y - y.mean())).max() > near:
        return {}
    idle: Array = np.abs(weights) * x.std(1)
    return {name: series for (name, series), effect in zip(parts.items(), idle, strict=True) if effect <= near}


def _parts(view: View, reward: Series) -> list[Test]:
    idle = untrained(view, reward)
    parts = {name: s for name, s in view.components().items() if len(s) >= LEAST and name not in idle}
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
        because = f"reward {moved(total.value)} while its component {name} {moved(own.value)}"
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
    because = f"the task reward {moved(own.value)} while the reward after its KL penalty {moved(after.value)}"
    onset = task.onset() if own.p_down < 0.01 else None
    return [(max(own.p_down, after.p_up), because, evidence, onset)]


RULES = (
    Rule(
        "reward hacking", ("reward", "evaluation"),
        "p = the larger of: reward rises; and the held-out score (a component; the task reward before KL) falls, or "
        f"a score without weight in the reward gains less than {FOLLOWS:g} × as much; least p × number of looks",
        f"each part p < α; needs {EVALUATIONS} evaluations in the part looked at",
        "theory: the proxy's fixed point drifts from the true one; test ours",
        "stop at the onset, read completions for what the verifier overlooks, mend it, raise the KL coefficient",
        hacking,
    ),
)  # fmt: skip
