"""Decisions in words, the same on the terminal, on the page, in alarms and in the log of a training."""

from __future__ import annotations

import math

from grposcope.core.finding import Finding
from grposcope.core.text import number, percent, span
from grposcope.instruments.autopilot.pilot import Decision, FollowUp
from grposcope.instruments.autopilot.policy import AutopilotPolicy

HELD = "the reward has held since the learning rate was cut"
"""Why a rate is raised again."""


def _cause(one: Decision) -> str:
    """Why something is done, in few words."""
    return one.why.brief if isinstance(one.why, Finding) else HELD


def _evidence(one: Decision) -> str:
    """What the decision rests on, a clause."""
    why = one.why
    if isinstance(why, Finding):
        return why.because
    return f"the mean reward since step {why.since:,} is {number(why.value)}, and the limit is {number(why.limit)}"


def action(one: Decision, settings: tuple[int, float] | None = None) -> str:
    """What to do, as a command; what the run does, where it was done. settings: interval and factor before."""
    if one.action == "tell":
        remedy = one.why.remedy if isinstance(one.why, Finding) else ""
        return remedy[:1].upper() + remedy[1:]
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
    why = _cause(one)
    return f"Step {one.step:,}: {why[:1].upper()}{why[1:]}: {_evidence(one)}. {action(one, settings).rstrip('.')}."


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
        "more than the policy allows; it is not proved for runs whose mean drifts further, as with prompts that get "
        "harder. No monitor looks at how rollouts are drawn (the sampler's temperature and weights, which prompts make "
        "a batch) or at how they are graded: grposcope verify does."
    )


def _change(one: Decision, settings: tuple[int, float] | None) -> str:
    if one.setting == "group":
        return f"groups of {one.group} rollouts, {one.prompts:,} prompts a batch"
    if one.setting == "tokens":
        return f"a token limit of {one.tokens:,}"
    if one.setting == "correction":
        return f"the importance correction {one.correction}"
    if settings is not None and one.interval != settings[0]:
        return f"refresh interval {one.interval}{_limit(one, settings[0])}"
    if math.isclose(one.factor, settings[1] if settings is not None else 1.0):
        return "the same settings"
    return f"{one.factor:.3g} × the scheduled learning rate{_limit(one, one.interval)}"


def _limit(one: Decision, interval: int) -> str:
    """Which threshold of stability a change moves towards, in brackets; empty for fresh rollouts that are used once.

    interval: refresh interval before it. As `instruments.dynamics` decides by the settings of a run.
    """
    if one.lag and interval > 1:
        return f" (a batch is {one.lag:,} steps late or more and serves {interval:,}: neither N* nor K* applies)"
    if one.lag:
        return f" (every batch is {one.lag:,} steps late or more: the limit is K*, which a lower rate raises)"
    return f" (a batch, fresh at first, serves {interval:,} steps: the limit is N*)" if interval > 1 else ""
