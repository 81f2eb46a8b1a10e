"""Groups of two rollouts, which have a gradient only where exactly one of them succeeds.

What it is
    The group size is 2.
How it shows
    At least half of the groups have equal rewards, whatever the prompts; after division by the standard deviation all
    advantages have one size.
What it does to the gradient
    A group is alive with probability 2p(1 − p) ≤ ½, and the size of a difference of rewards is lost: ±1/√2.
What to do
    Draw 4 rollouts of a prompt or more, or do not divide by the standard deviation. `grposcope plan` says how many pay.
What decides
    The group size in the settings.
Sources
    Dead groups at chance, grposcope.maths.dead_groups
    TRL 1.16, GRPOConfig: https://huggingface.co/docs/trl/grpo_trainer
    verl 0.9.1, core_algos: https://github.com/verl-project/verl"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import EVERY, group_size, key_of
from grposcope.signs.settings.recipe import group_relative


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A group size of 2 where the rollouts of a prompt are compared."""
    key = key_of(config, "group")
    group = group_size(config)
    if not group_relative(config):
        return
    if group is None:
        yield cannot_tell(f"{key} is not known", key)
    elif group == 2:
        yield fact(
            True,
            "a group has a gradient only if exactly one of the two succeeds, which happens at most half of the time; "
            "after division by the standard deviation its advantages are ±0.71, whatever the rewards are",
            config.signs(key),
            grade="note",
            brief="groups of two rollouts",
            remedy=f"set {key} to 4 or more, or do not divide by the standard deviation",
        )


FAULT = Fault(
    name="group of two",
    rank=5.0,
    remedy="draw 4 rollouts of a prompt or more",
    settings=SettingsCheck("group of two", _settings, EVERY, "groups of two rollouts", ("note",)),
)
