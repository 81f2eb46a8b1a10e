"""Division by the group's standard deviation at a group size at which it changes nothing but the scale.

What it is
    Groups of 2 or 3 rollouts, rewards of two values, and advantages divided by the standard deviation of the group.
How it shows
    All live groups have the same standard deviation.
What it does to the gradient
    It multiplies it by one number, as another learning rate would: hard prompts do not count more. From 4 rollouts on
    they do, relative to prompts solved half of the time: 1.25 × at G = 8 and a success rate of 10 %, 1.60 × at G = 32.
What to do
    Read the learning rate with the factor in mind; draw larger groups if hard prompts are meant to count more.
What decides
    The group size in the settings. `grposcope plan` has the weight of a prompt at every group size.
Sources
    method of this project: grposcope.maths.standardized_weight
    arXiv:2603.01162, Proposition 13 (holds as G → ∞ alone): https://arxiv.org/abs/2603.01162"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.standardizing import scaled_by_group
from grposcope.faults.known_task import Known
from grposcope.maths.standardized_weight import SCALE_ALONE
from grposcope.signs import standardizing
from grposcope.signs.settings.names import group_size, key_of
from grposcope.signs.settings.recipe import group_relative


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Division by the group's deviation at G = 3; of G = 2 `group of two` tells. What it does at other sizes."""
    key, group = scaled_by_group(config), group_size(config)
    if not key or group is None or group < SCALE_ALONE or not group_relative(config):
        return
    because = f"with rewards of two values, {standardizing.effect(group, facts.success)}"
    if group > SCALE_ALONE:
        yield fact(False, because)
        return
    yield fact(
        True,
        because,
        config.signs(key, key_of(config, "group")),
        grade="note",
        brief="dividing by the deviation changes the scale alone",
        remedy="draw groups of 8 or more if hard prompts are meant to count more, or do not divide",
    )


FAULT = Fault(
    name="idle standardizing",
    rank=5.1,
    remedy="draw larger groups, or do not divide by the standard deviation",
    settings=SettingsCheck(
        "idle standardizing",
        _settings,
        ("trl", "verl", "skyrl", "openrlhf", "slime", "ms-swift"),
        "division by the group's deviation at a size at which it changes the scale alone",
        ("note",),
    ),
)
