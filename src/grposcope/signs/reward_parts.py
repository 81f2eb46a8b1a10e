"""What the parts of the training reward say of reward hacking: components, and the reward before its KL penalty."""

from __future__ import annotations

from functools import partial

import numpy as np

from grposcope.core.finding import Finding, Sign, measured
from grposcope.core.text import apart, number
from grposcope.maths.timeseries.change import EARLY, FIRST, LATE, fit
from grposcope.maths.timeseries.noise import Array
from grposcope.signs import onset
from grposcope.signs.answers import is_beside, pays_for_answers
from grposcope.signs.heldout import FOLLOWS, comparable
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities
from grposcope.signs.tests import ends, went
from grposcope.signs.thresholds import RISES

OF_WEIGHTS = (
    "lower the weight of {}, or pay it only where the answer is right (multiply the two): it pays more than the right "
    "answers that are lost for it; read completions that earn it, and go back to the checkpoint before the onset"
)
"""What to do where right answers are lost for another part of the reward."""

OF_THE_KL = "kl against its penalty"
"""The fault of a KL penalty that adds to the reward."""

OF_AN_ADDED_KL = (
    "look at the KL before the verifier: a penalty that adds is a KL below 0, as where its mean has tokens that the "
    "policy did not draw (of tools, searches or environments), or its sign is reversed: leave such tokens out of it, "
    "check the sign, and go back to a checkpoint from before it grew"
)
"""What to do where the KL penalty adds to the reward that is trained on, and the task reward falls."""

EXACT = 1e-3
"""Share of the reward's spread that rounding may hide."""

LEFT = 0.2
"""Share of their first level below which right answers are lost."""

FULL = 0.8
"""A component in [0, 1] that begins above this has no room to follow."""


def against_parts(quantities: Quantities, reward: MetricSeries) -> list[Finding]:
    """The training reward rises while a component, or the task reward before its KL penalty, does not."""
    without_weight = unweighted(quantities, reward)
    return [
        *_against_unweighted(quantities, without_weight, reward),
        *_against_components(quantities, without_weight, reward),
        *_against_task_reward(quantities),
    ]


def _against_unweighted(
    quantities: Quantities, without_weight: dict[str, MetricSeries], reward: MetricSeries
) -> list[Finding]:
    """A component that is logged and not trained on gains too little: often it is the score that is really meant."""
    tests: list[Finding] = []
    for name, series in without_weight.items():
        if is_beside(name) or not comparable(quantities, reward, series) or series.level(EARLY).value > FULL:
            continue  # a form that is not trained on need not follow
        trained, scored = reward.curve.change(), series.curve.change()
        both = np.isin(reward.steps, series.steps)
        behind = fit(series.values[np.isin(series.steps, reward.steps)] - FOLLOWS * reward.values[both]).change()
        evidence = (*ends(reward), *ends(series, "should follow"))
        only = "only " if 0 < scored.value < FOLLOWS * trained.value else ""
        score = went(series).replace("rose from", f"rose {only}from")
        because = f"the reward {went(reward)} while {name}, which is logged but has weight 0 in it, {score}"
        brief = f"{quantities.key(series.name)}, which is not in it, {_brief(series)}"
        tests.append(measured(
            max(trained.p_up, behind.p_down), because, evidence, brief=brief,
            begins=partial(onset.parting, reward, series),
        ))  # fmt: skip
    return tests


def unweighted(quantities: Quantities, reward: MetricSeries) -> dict[str, MetricSeries]:
    """Components that the record proves to have no weight in the reward.

    Either another component *is* the reward; or the reward is a weighted sum of all components to EXACT of its spread,
    with one solution, in which their weight is 0.
    """
    parts = {
        name: series
        for name, series in quantities.components().items()
        if len(series) >= LEAST and np.ptp(series.values)
    }
    table = quantities.run.table
    target = table[reward.name]
    columns = [table[f"component/{name}"] for name in parts]
    rows = np.isfinite(np.array([target, *columns])).all(0)
    if len(parts) < 2 or rows.sum() < LEAST or np.ptp(target[rows]) == 0:
        return {}
    x, y = np.array(columns)[:, rows], target[rows]
    near = EXACT * y.std()
    equal = np.array([bool(np.abs(component - y).max() <= near) for component in x])
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
) -> list[Finding]:
    """A component that has weight in the reward falls while the reward rises."""
    parts = {
        name: series
        for name, series in quantities.components().items()
        if len(series) >= LEAST and name not in without_weight
    }
    if len(parts) < 2:
        return []
    total = reward.curve.change()
    tests: list[Finding] = []
    for name, series in parts.items():
        change = series.curve.change()
        p = max(total.p_up, change.p_down)
        evidence = (*ends(reward), *ends(series, "should not fall"))
        because = f"the reward {went(reward)} while its component {name} {went(series)}"
        if pays_for_answers(name) and (lost := _lost_at_once(series, reward)) is not None and 2 * lost < p:
            p, first = 2 * lost, series.level(FIRST)
            a, b = apart(first.value, series.present.last.value)
            because = f"the reward {went(reward)} while its component {name} fell from {a} in the first rows to {b}"
            evidence = (
                *evidence[:2],
                Sign(f"{series.name}, first rows", first.value, first.se, column=series.name),
                evidence[-1],
            )
        brief = f"{quantities.key(series.name)} {_brief(series)}"
        remedy = ""
        if pays_for_answers(name) and (paid := _paid_instead(parts)):
            because, remedy = f"{because}, and component {paid} {went(parts[paid])}", OF_WEIGHTS.format(paid)
        begins = partial(onset.since, series, -1)
        tests.append(measured(p, because, evidence, brief=brief, begins=begins, remedy=remedy))
    return [*tests, *_traded(quantities, parts)]


def _paid_instead(parts: dict[str, MetricSeries]) -> str:
    """The part of the reward beside right answers that rises most; empty where none rises beyond chance."""
    others = {name: series for name, series in parts.items() if not pays_for_answers(name)}
    rises = {name: series.change(FIRST, LATE) for name, series in others.items()}
    risen = [name for name, change in rises.items() if change.p_up < RISES]
    return max(risen, key=lambda name: rises[name].value, default="")


def _traded(quantities: Quantities, parts: dict[str, MetricSeries]) -> list[Finding]:
    """Right answers are lost while another part of the reward rises, whatever their sum does."""
    tests: list[Finding] = []
    for name, series in parts.items():
        if not pays_for_answers(name) or series.level(LATE).value > LEFT * series.level(EARLY).value:
            continue
        others = {other: component for other, component in parts.items() if not pays_for_answers(other)}
        rises = {other: component.curve.change().p_up for other, component in others.items()}
        if not rises:
            continue
        gained = min(rises, key=lambda other: rises[other])
        p = max(series.curve.change().p_down, min(1.0, len(rises) * rises[gained]))
        gain = f"component {gained} {went(others[gained])}"
        because = f"component {name} {went(series)} while {gain}: one part of the reward is traded for another"
        evidence = (*ends(others[gained]), *ends(series, "should not fall"))
        brief, begins = f"{gained} {_brief(others[gained])}", partial(onset.since, series, -1)
        tests.append(measured(p, because, evidence, brief=brief, begins=begins, remedy=OF_WEIGHTS.format(gained)))
    return tests


def _lost_at_once(component: MetricSeries, reward: MetricSeries) -> float | None:
    """p of a reward that rose since the first rows while right answers fell below LEFT of what they were; None where
    they did not. Both may be over before the first part of the run is."""
    if component.level(LATE).value > LEFT * component.level(FIRST).value:
        return None
    return max(reward.change(FIRST, LATE).p_up, component.change(FIRST, LATE).p_down)


def _against_task_reward(quantities: Quantities) -> list[Finding]:
    """The task reward falls while the reward after its KL penalty, which is what is trained on, rises."""
    task, trained = quantities.column("reward"), quantities.column("reward_after_kl")
    if task is None or trained is None or min(len(task), len(trained)) < LEAST:
        return []
    if np.array_equal(task.values, trained.values):
        return []
    before, after = task.curve.change(), trained.curve.change()
    evidence = (*ends(task), *ends(trained, "what is optimised"))
    because = f"the task reward {went(task)} while the reward after its KL penalty {went(trained)}"
    brief = f"task reward {_brief(task)}, after its KL penalty {_brief(trained)}"
    begins = partial(onset.since, task, -1)
    p = max(before.p_down, after.p_up)
    adds = trained.level(LATE).value - task.level(LATE).value
    if adds <= 0:
        return [measured(p, because, evidence, brief=brief, begins=begins)]
    because += f": at the end the penalty adds {number(adds)} to it instead of taking from it"
    return [measured(p, because, evidence, brief=brief, begins=begins, remedy=OF_AN_ADDED_KL, fault=OF_THE_KL)]


def _brief(series: MetricSeries) -> str:
    """The levels of a metric at first and at last, in few characters."""
    return " → ".join(apart(series.level(EARLY).value, series.level(LATE).value))
