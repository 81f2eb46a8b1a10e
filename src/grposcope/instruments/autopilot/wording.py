"""Decisions in words, the same on the terminal, on the page, in alarms and in the log of a training."""

from __future__ import annotations

import math

from grposcope.core.text import percent
from grposcope.instruments.autopilot.pilot import Decision, FollowUp
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
    "cut": "Raise the token limit, or give a penalty to length",
    "dead": "Use easier problems, a larger group, or draw again until groups differ (--allocate resample)",
    "reward": "Compare the reward function and the data before and after that step; the policy needs no change",
    "heldout": "Read completions of the best and the last checkpoint: which reward rises that should not?",
    "not_finite": "Look at the batch of that step",
}
"""What a person should do where the autopilot only tells."""


def evidence(one: Decision) -> str:
    """What the decision rests on, a clause."""
    if one.monitor == "not_finite":
        return f"the gradient has not been finite since step {one.since}"
    e = "over 1e9" if one.e > 1e9 else f"{one.e:.0f}"
    if one.monitor in ("cut", "dead"):
        share = "half of the completions are cut" if one.monitor == "cut" else "95% of the groups are dead"
        return f"more than {share} (e-value {e})"
    since = f" since step {one.since}" if one.since >= 0 else ""
    return (
        f"{SEEN[one.monitor]} was at least {one.level:.3g} and is {one.value:.3g}{since}, below the limit of "
        f"{one.limit:.3g} (e-value {e})"
    )


def action(one: Decision, settings: tuple[int, float] | None = None) -> str:
    """What is done, as a command. settings: interval and factor before, where known."""
    change = _change(one, settings)
    if one.action == "tell":
        return REMEDIES[one.monitor]
    if one.action == "stop":
        return f"Stop, and keep the weights of step {one.to}" if one.to >= 0 else "Stop"
    if one.action == "change":
        return f"Go on with {change}"
    return f"Go back to the weights of step {one.to}, and go on with {change}"


def sentence(one: Decision, settings: tuple[int, float] | None = None) -> str:
    """A decision as one line."""
    cause = one.cause[:1].upper() + one.cause[1:]
    return f"Step {one.step}: {cause}: {evidence(one)}. {action(one, settings)}."


def became(one: Decision, outcome: FollowUp | None) -> str:
    """What became of it, a sentence; empty where nothing was expected."""
    if outcome is None or not one.done:
        return ""
    low, high = outcome.mean.interval()
    word = "as expected" if outcome.came_true else "not as expected"
    return f"By step {outcome.step} the mean reward was {outcome.mean.value:.3g} ({low:.3g} to {high:.3g}), {word}."


def promise(policy: AutopilotPolicy) -> str:
    """What the chance of a needless alarm is, and of what that is a theorem."""
    return (
        f"The chance of a needless alarm over the whole run is at most {percent(policy.alpha)}, all monitors together. "
        "That holds for runs whose prompts are drawn alike and whose level never falls by more than the policy allows; "
        "for levels that wander it is not proved."
    )


def _change(one: Decision, settings: tuple[int, float] | None) -> str:
    if settings is not None and one.interval != settings[0]:
        return f"refresh interval {one.interval}"
    if math.isclose(one.factor, settings[1] if settings is not None else 1.0):
        return "the settings as they are"
    return f"{one.factor:.3g} of the learning rate"
