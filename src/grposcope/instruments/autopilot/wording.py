"""Decisions in words, the same on the terminal, on the page, in alarms and in the log of a training."""

from __future__ import annotations

import math

from grposcope.core.text import number, percent, span
from grposcope.instruments.autopilot.pilot import CALM, Decision, FollowUp
from grposcope.instruments.autopilot.policy import AutopilotPolicy

SEEN = {
    "reward": "the mean reward",
    "heldout": "held-out accuracy",
    "cut": "completions cut at the limit",
    "dead": "groups with equal rewards",
    "not_finite": "the gradient",
}
"""What each monitor looks at."""

REMEDIES = {
    "cut": "Raise the token limit, or penalise length",
    "dead": "Use easier problems or a larger group, or draw again until the rewards of a group "
    "differ (--allocate resample)",
    "reward": "Compare the reward function and the data before and after that step; the policy needs no change",
    "heldout": "Compare completions of the best and of the last checkpoint: what do the later ones do that "
    "is rewarded wrongly?",
    "not_finite": "Look at the batch of that step",
}
"""What a person should do where the autopilot only tells."""


def evidence(one: Decision) -> str:
    """What the decision rests on, a clause."""
    if one.monitor == CALM:
        return f"the mean reward since step {one.since:,} is {number(one.value)}, and the limit is {number(one.limit)}"
    if one.monitor == "not_finite":
        return f"the gradient has not been finite since step {one.since:,}"
    e = "over 1e9" if one.e > 1e9 else f"{one.e:.0f}"
    if one.monitor in ("cut", "dead"):
        share = "half of the completions are cut" if one.monitor == "cut" else "95% of the groups are dead"
        return f"more than {share} (e-value {e})"
    since = f" since step {one.since:,}" if one.since >= 0 else ""
    return (
        f"{SEEN[one.monitor]} was at least {number(one.level)} and has been {number(one.value)}{since}, below the "
        f"limit of {number(one.limit)} (e-value {e})"
    )


def action(one: Decision, settings: tuple[int, float] | None = None) -> str:
    """What to do, as a command; what the run does, where it was done. settings: interval and factor before."""
    if one.action == "tell":
        return REMEDIES[one.monitor]
    change, kept = _change(one, settings), f"the weights of step {one.to:,}"
    if one.action == "stop":
        keeps = f"The run ends and keeps {kept}" if one.to >= 0 else "The run ends"
        keep = f"Stop, and keep {kept}" if one.to >= 0 else "Stop"
        return keeps if one.done else keep
    if one.action == "change":
        return f"The run continues with {change}" if one.done else f"Continue with {change}"
    if one.done:
        return f"The run goes back to {kept} and continues with {change}"
    return f"Go back to {kept}, and continue with {change}"


def sentence(one: Decision, settings: tuple[int, float] | None = None) -> str:
    """A decision as one line."""
    cause = one.cause[:1].upper() + one.cause[1:]
    return f"Step {one.step:,}: {cause}: {evidence(one)}. {action(one, settings)}."


def became(one: Decision, outcome: FollowUp | None) -> str:
    """What became of it, a sentence; empty where nothing was expected."""
    if outcome is None or not one.done:
        return ""
    low, high = outcome.mean.interval()
    word = "as expected" if outcome.came_true else "not as expected"
    return f"By step {outcome.step:,} the mean reward was {number(outcome.mean.value)} ({span(low, high)}), {word}."


def promise(policy: AutopilotPolicy) -> str:
    """What the chance of a needless alarm is, and of what that is a theorem."""
    return (
        f"The chance of a needless alarm over the whole run is at most {percent(policy.alpha)}, all monitors together. "
        "This is proved for runs that draw prompts from the same distribution throughout and whose mean never falls by "
        "more than the policy allows; it is not proved for runs whose mean drifts further."
    )


def _change(one: Decision, settings: tuple[int, float] | None) -> str:
    if one.setting == "tokens":
        return f"a token limit of {one.tokens:,}"
    if one.setting == "correction":
        return f"the importance correction {one.correction}"
    if settings is not None and one.interval != settings[0]:
        return f"refresh interval {one.interval}"
    if math.isclose(one.factor, settings[1] if settings is not None else 1.0):
        return "the same settings"
    return f"{one.factor:.3g} × the scheduled learning rate"
