"""A clip_ratio of verl that two other settings override by their defaults.

What it is
    verl reads clip_ratio only where clip_ratio_low and clip_ratio_high are null, and both have defaults.
How it shows
    Changing clip_ratio changes nothing, not even the clip fraction.
What it does to the gradient
    Tokens are clipped at the two defaults, not at what was set.
What to do
    Set clip_ratio_low and clip_ratio_high.
What decides
    The clip fraction of two short runs that differ in clip_ratio alone.
Sources
    verl 0.9.1, core_algos: https://github.com/verl-project/verl"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.verl import ACTOR

RATIO = ACTOR + "clip_ratio"
SIDES = (ACTOR + "clip_ratio_low", ACTOR + "clip_ratio_high")


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A clip_ratio beside two sides that differ from it."""
    if config.dialect.name == "roll":
        unread = [key for key in ("pg_clip_low", "pg_clip_high") if config.says(key)]
        if unread and config.off("use_pg_clip_range"):
            yield fact(True, f"use_pg_clip_range is off, so that both sides of the ratio are clipped at pg_clip = "
                       f"{config.get('pg_clip')}", config.signs(*unread, "use_pg_clip_range", "pg_clip"),
                       grade="warning", brief=f"{unread[0]} is not read",
                       remedy="set use_pg_clip_range: true")  # fmt: skip
        return
    sides = [side for side in SIDES if config.get(side) is not None]
    if not config.says(RATIO) or len(sides) < 2:
        return
    low, high = (config.number(side) for side in sides)
    if config.number(RATIO) not in (low, high):
        yield fact(
            True,
            f"clip_ratio_low and clip_ratio_high are {low} and {high}, and clip_ratio = {config.get(RATIO)} is used "
            "only where they are null",
            config.signs(RATIO, *sides),
            grade="warning",
            brief="clip_ratio is not read",
            remedy="set clip_ratio_low and clip_ratio_high",
        )


FAULT = Fault(
    name="clip range not read",
    rank=3.4,
    remedy="set clip_ratio_low and clip_ratio_high",
    settings=SettingsCheck(
        "clip range not read", _settings, ("verl", "roll"), "a clip range that other settings override", ("warning",)
    ),
)
