"""A clip range that was set although each batch of rollouts is used for one step, at which every ratio is 1.

What it is
    One optimiser step per batch, drawn by the policy that takes it.
How it shows
    The clip fraction is 0 in every row.
What it does to the gradient
    Nothing: at ratio 1 no token is clipped.
What to do
    Leave it out, or take several steps on a batch.
What decides
    The clip fraction of the first steps.
Sources
    arXiv:1707.06347 (the ratio is 1 at the first step): https://arxiv.org/abs/1707.06347"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.recipe import interval
from grposcope.signs.settings.verl import ACTOR

KEYS = {
    "trl": ("epsilon", "epsilon_high", "delta"),
    "verl": (ACTOR + "clip_ratio_low", ACTOR + "clip_ratio_high"),
}
"""The keys of the clip range."""


def settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A clip range other than the default beside one step on a batch; TRL's vLLM and cispo have other uses for it."""
    if config.on("use_vllm") or config.get("loss_type") == "cispo":
        return
    chosen = [
        key
        for key in KEYS[config.dialect.name]
        if config.says(key) and config.number(key) not in (None, config.dialect.defaults.get(key))
    ]
    if chosen and interval(config, facts.world) == 1:
        yield fact(
            True,
            "each batch of rollouts is used for one optimiser step, at which every ratio is 1",
            config.signs(*chosen),
            grade="note",
            brief="the clip range has no effect",
            remedy="leave it out, or take several steps on a batch",
        )


FAULT = Fault(
    name="idle clip range",
    rank=5.2,
    remedy="leave it out, or take several steps on a batch",
    settings=SettingsCheck(
        "idle clip range", settings, ("trl", "verl"), "a clip range where each batch is used once", ("note",)
    ),
)
