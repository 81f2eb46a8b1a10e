"""Rollouts of a prompt that are all the same text, because the sampler takes the likeliest token.

What it is
    The temperature is 0, or sampling is switched off.
How it shows
    Every completion of a prompt is the same; all groups are dead, and the logged entropy is that of the policy, not of
    what was drawn.
What it does to the gradient
    It is 0: rewards within a group are equal.
What to do
    Sample at temperature 1, which is also the policy that importance ratios assume.
What decides
    Two completions of one prompt in a batch.
Sources
    Transformers docs, generation strategies: https://huggingface.co/docs/transformers/generation_strategies"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known import Known
from grposcope.signs.settings.names import EVERY, TEMPERATURE, by_our_names, key_of
from grposcope.signs.settings.verl import ROLLOUT

SAMPLE = ROLLOUT + "do_sample"
SAME = "all rollouts of a prompt are the same text, so every group is dead"


def settings(config: Settings, known: Known) -> Iterator[Finding]:
    """A temperature of 0, or verl without sampling."""
    key = key_of(config, TEMPERATURE)
    if by_our_names(config).get("temperature") == 0:
        yield fact(True, f"at temperature 0 {SAME}", config.signs(key), grade="failing", brief="sampling is greedy",
                   remedy=f"set {key} to 1")  # fmt: skip
    if config.dialect.name == "verl" and config.off(SAMPLE):
        yield fact(True, f"without sampling {SAME}", config.signs(SAMPLE), grade="failing", brief="sampling is greedy",
                   remedy=f"leave {SAMPLE} at True")  # fmt: skip


FAULT = Fault(
    name="greedy sampling",
    rank=2.2,
    remedy="sample at temperature 1",
    settings=SettingsCheck(
        "greedy sampling", settings, EVERY, "rollouts of a prompt that are all the same", ("failing",)
    ),
)
