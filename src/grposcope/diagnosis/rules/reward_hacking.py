"""Reward hacking: the training reward rises while a score that it stands for does not.

Such a score is a held-out evaluation, a component of the reward, a score that is logged without weight in the reward,
or the task reward where the trained one has a KL penalty in it. The p-value is the least of these tests, times their
number.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.special import stdtr

from grposcope.diagnosis.findings import Evidence, Rule, RuleResult, cannot_tell, least_of, moved
from grposcope.diagnosis.quantities import EVALUATIONS, LEAST, MetricSeries, Quantities
from grposcope.timeseries.change import EARLY, fit
from grposcope.timeseries.noise import Array, Contrast

FOLLOWS = 0.25
"""A score that gains less than this share of what training reward gains does not follow it."""

EXACT = 1e-3
"""Share of the reward's spread that rounding may hide."""

FULL = 0.8
"""A score in [0, 1] that begins above this has no room to follow."""


def check(quantities: Quantities) -> RuleResult:
    """Training reward rises while the held-out score, a component or the task reward does not."""
    reward = quantities.require("reward")
    without_weight = unweighted(quantities, reward)
    tests = [
        *_against_heldout(quantities, reward),
        *_against_unweighted(without_weight, reward),
        *_against_components(quantities, without_weight, reward),
        *_against_task_reward(quantities),
    ]
    missing = () if quantities.heldout is not None else ("evaluation",)
    if not tests and len(quantities.run.evaluations):
        return cannot_tell(f"too few held-out evaluations to tell a trend: {EVALUATIONS} are needed", *missing)
    if not tests:
        return cannot_tell("reward hacking cannot be seen in the training reward, and nothing else is logged", *missing)
    return replace(least_of(tests), missing=missing)


def _against_heldout(quantities: Quantities, reward: MetricSeries) -> list[RuleResult]:
    """The held-out score falls, or gains too little on the same scale: over the whole run, and over its second half."""
    held = quantities.heldout
    if held is None:
        return []
    tests: list[RuleResult] = []
    begin, span = reward.steps[0], reward.steps[-1] - reward.steps[0]
    for part, share in (("whole run", 0.0), ("second half", 0.5)):
        inside, rows = held.steps >= begin + share * span, reward.steps >= begin + share * span
        if inside.sum() < EVALUATIONS or rows.sum() < LEAST:
            continue
        trained, scored = fit(reward.values[rows]).change(), _trend(held.values[inside])
        evidence = (
            _evidence(f"{reward.name}, {part}", trained, column=reward.name),
            _evidence(f"held-out {held.name}, {part}", scored, "should follow"),
        )
        because = f"the reward {moved(trained.value)} and held-out {held.name} {moved(scored.value)} over the {part}"
        onset = _best_evaluation(held)
        tests.append(RuleResult(max(trained.p_up, scored.p_down), because, evidence, onset))
        if _same_scale(reward, held):
            lag = scored.value - FOLLOWS * trained.value
            error = math.hypot(scored.se, FOLLOWS * trained.se)
            behind = float(stdtr(int(inside.sum()) - 2, lag / error)) if error > 0 else float(lag >= 0)
            tests.append(RuleResult(max(trained.p_up, behind), because, evidence, onset))
    return tests


def _evidence(what: str, test: Contrast, limit: str = "", column: str = "") -> Evidence:
    return Evidence(f"change of {what}", test.value, test.se, limit, column)


def _trend(values: Array) -> Contrast:
    """Last minus first of a straight line through evaluations, which lie far enough apart for noise to be white."""
    x = np.linspace(-0.5, 0.5, len(values))
    slope, centre = float(x @ values / (x @ x)), float(values.mean())
    rest = values - centre - slope * x
    df = len(values) - 2
    error = math.sqrt(float(rest @ rest) / df / float(x @ x))
    if error <= 1e-9 * max(abs(centre), 1e-300):
        return Contrast(slope, 0.0, float(slope <= 0), float(slope >= 0))
    return Contrast(slope, error, float(stdtr(df, -slope / error)), float(stdtr(df, slope / error)))


def _same_scale(reward: MetricSeries, score: MetricSeries) -> bool:
    """Whether both lie in [0, 1] or have one name."""
    both = np.concatenate([reward.values, score.values])
    return (both.min() >= 0 and both.max() <= 1) or reward.name == score.name


def _best_evaluation(held: MetricSeries) -> int:
    """Step of the best evaluation, smoothed over three, after which the held-out score falls behind."""
    smooth = np.convolve(np.pad(held.values, 1, "edge"), np.ones(3) / 3, "valid")
    return int(held.steps[int(np.argmax(smooth))])


def _against_unweighted(without_weight: dict[str, MetricSeries], reward: MetricSeries) -> list[RuleResult]:
    """A component that is logged and not trained on gains too little: often it is the score that is really meant."""
    tests: list[RuleResult] = []
    for name, series in without_weight.items():
        if not _same_scale(reward, series) or series.level(EARLY).value > FULL:
            continue
        trained, scored = reward.curve.change(), series.curve.change()
        both = np.isin(reward.steps, series.steps)
        behind = fit(series.values[np.isin(series.steps, reward.steps)] - FOLLOWS * reward.values[both]).change()
        evidence = (
            _evidence(reward.name, trained, column=reward.name),
            _evidence(f"{name}, which has no weight in it", scored, "should follow", series.name),
        )
        only = "only " if 0 < scored.value < FOLLOWS * trained.value else ""
        score = moved(scored.value).replace("rose by ", f"rose by {only}")
        because = f"the reward {moved(trained.value)} while {name}, which is logged but has no weight in it, {score}"
        tests.append(RuleResult(max(trained.p_up, behind.p_down), because, evidence, reward.onset()))
    return tests


def unweighted(quantities: Quantities, reward: MetricSeries) -> dict[str, MetricSeries]:
    """Components that the record proves to have no weight in the reward.

    Either another component *is* the reward; or the reward is a weighted sum of all components to EXACT of its spread,
    with one solution, in which their weight is 0.
    """
    parts = {name: series for name, series in quantities.components().items() if len(series) >= LEAST}
    table = quantities.run.table
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
    effects: Array = np.abs(weights) * x.std(1)
    return {name: series for (name, series), effect in zip(parts.items(), effects, strict=True) if effect <= near}


def _against_components(
    quantities: Quantities, without_weight: dict[str, MetricSeries], reward: MetricSeries
) -> list[RuleResult]:
    """A component that has weight in the reward falls while the reward rises."""
    parts = {
        name: series
        for name, series in quantities.components().items()
        if len(series) >= LEAST and name not in without_weight
    }
    if len(parts) < 2:
        return []
    total = reward.curve.change()
    tests: list[RuleResult] = []
    for name, series in parts.items():
        part = series.curve.change()
        evidence = (
            _evidence(reward.name, total, column=reward.name),
            _evidence(f"component {name}", part, "should not fall", series.name),
        )
        because = f"the reward {moved(total.value)} while its component {name} {moved(part.value)}"
        onset = series.onset() if part.p_down < 0.01 else None
        tests.append(RuleResult(max(total.p_up, part.p_down), because, evidence, onset))
    return tests


def _against_task_reward(quantities: Quantities) -> list[RuleResult]:
    """The task reward falls while the reward after its KL penalty, which is what is trained on, rises."""
    task, trained = quantities.column("reward"), quantities.column("reward_after_kl")
    if task is None or trained is None or min(len(task), len(trained)) < LEAST:
        return []
    if np.array_equal(task.values, trained.values):
        return []
    before, after = task.curve.change(), trained.curve.change()
    evidence = (
        _evidence("reward", before, column=task.name),
        _evidence("reward_after_kl", after, "what is optimised", trained.name),
    )
    because = f"the task reward {moved(before.value)} while the reward after its KL penalty {moved(after.value)}"
    onset = task.onset() if before.p_down < 0.01 else None
    return [RuleResult(max(before.p_down, after.p_up), because, evidence, onset)]


RULE = Rule(
    mode="reward hacking",
    needs=("reward", "evaluation"),
    statistic="p = the larger of: reward rises; and the held-out score (a component; the task reward before KL) falls, "
    f"or a score without weight in the reward gains less than {FOLLOWS:g} × as much; least p × number of looks",
    threshold=f"each part p < α; needs {EVALUATIONS} evaluations in the part looked at",
    source="theory: the proxy's fixed point drifts from the true one; the test is a method of this project",
    advice="stop at the onset, read completions for what the verifier overlooks, mend it, raise the KL coefficient",
    check=check,
)
