"""Rollouts are stopped by a limit on turns, not by their environment or by tokens.

What it is
    max_turns, max_tool_calling_iterations or the environment's own limit is below what a solution takes, or the
    policy does not come to an end.
How it shows
    A share of rollouts whose stop reason is the limit on turns; or nearly all rollouts with the most turns there
    are, which they did not take at first. A longer limit on tokens changes nothing.
What it does to the gradient
    Stopped rollouts are mostly paid 0, so that groups die, or taking turns is punished as such.
What to do
    Raise the limit on turns to twice what solved rollouts take. If solved ones take few, the policy loops: see
    looping. Do not mask rollouts by their truncation flag: it counts the limit on tokens.
What decides
    Turns of solved rollouts beside the limit.
Sources
    NeMo-RL #3970: https://github.com/NVIDIA-NeMo/RL/issues/3970
    TRL #4976: https://github.com/huggingface/trl/issues/4976
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.turns import TRL_TURNS, VERL_TURNS
from grposcope.faults.known_task import Known
from grposcope.signs.agents import TURN_LIMIT

MULTI = "actor_rollout_ref.rollout.multi_turn."
LEAST = {"trl": (TRL_TURNS, 0), "verl": (f"{MULTI}max_assistant_turns", 1)}
"""Trainer -> its limit on turns, and the value at which no answer of a tool is read."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The limit on turns ends every rollout before it has read an answer of a tool."""
    key, least = LEAST.get(config.dialect.name, ("", 0))
    if not key or (config.dialect.name == "verl" and not config.on(VERL_TURNS)):
        return
    limit = config.whole(key)
    if limit is not None and limit <= least:
        yield fact(
            True,
            f"{key} {limit} ends a rollout at its first call: no answer of a tool is ever read, and calls cannot pay",
            config.signs(key),
            grade="failing",
            explains=("never paid", "no learning", "starved"),
            brief="no tool answer is read",
            remedy=f"set {key} to twice the turns that a solution takes",
        )


FAULT = Fault(
    name="turn limit",
    rank=141,
    remedy="raise the limit on turns to twice what solved rollouts take; if these take few, read the stopped ones for "
    "repeated calls",
    effect="stopped rollouts are mostly paid 0",
    beside="warning",
    log=TURN_LIMIT,
    settings=SettingsCheck(
        "turn limit",
        _settings,
        ("trl", "verl"),
        "a limit on turns that ends rollouts at their first call",
        ("failing",),
    ),
)
