"""The clip of the ratio in force is not the stated one: another ε, exchanged sides, or both sides for either sign.

Asked as
    Does the clip do what epsilon says?
What it is
    epsilon and epsilon_high that are not passed on, sides that are exchanged, a clip that is left out, or a ratio that
    is clamped without the min of the surrogate.
How it shows
    Which tokens of a later update have a derivative of 0 and which have not gives the two limits in force.
What it does to the gradient
    A tighter range teaches less from each further update; a wider one lets a batch be followed too far. Exchanged
    sides hold good rollouts back and push bad ones down further than was meant, so entropy falls faster.
What to do
    Compare the range that the loss is called with with the settings, the lower and the upper side by themselves.
What decides
    The derivatives and log-probabilities of a second update on one batch: train with verify_every.
Sources
    DAPO, two sides: https://arxiv.org/abs/2503.14476
    method of this project"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import gradient
from grposcope.signs.settings.verl import ACTOR

_SIDES = {
    "trl": ("epsilon", "epsilon_high"),
    "verl": (ACTOR + "clip_ratio_low", ACTOR + "clip_ratio_high"),
    "slime": ("eps_clip", "eps_clip_high"),
    "ms-swift": ("epsilon", "epsilon_high"),
}
"""The keys of the lower and of the upper side of the clip."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A lower side that is stated wider than the upper one."""
    sides = _SIDES[config.dialect.name]
    low, high = (config.number(key) if config.get(key) is not None else None for key in sides)
    if low is None or high is None or not config.says(sides[1]) or low <= high:
        return
    yield fact(
        True,
        f"{sides[0]} is {low:g} and {sides[1]} is {high:g}: tokens may become rarer by more than they may become "
        "likelier, which is clip-higher the other way round",
        config.signs(*sides),
        grade="warning",
        brief="the lower side of the clip is wider than the upper",
        remedy="exchange the two, unless a tighter upper side is meant",
        explains=("entropy collapse",),
    )


FAULT = Fault(
    name="wrong clip range",
    rank=7.4,
    remedy="compare the range that the loss is called with with the settings, each side by itself",
    beside="warning",
    rollouts=(gradient.PROOF,),
    settings=SettingsCheck(
        "wrong clip range",
        _settings,
        tuple(_SIDES),
        "a lower side of the clip that is wider than the upper one",
        ("warning",),
        "DAPO, clip-higher: https://arxiv.org/abs/2503.14476",
    ),
)
