"""A clip range that was set although each batch of rollouts is used for one step, at which every ratio is 1.

What it is
    One optimiser step per batch, drawn by the policy that takes it. Or by an older one whose probabilities nobody keeps
    (SkyRL's fully asynchronous training), so that the ratio is taken to the trainer's own.
How it shows
    The clip fraction is 0 in every row.
What it does to the gradient
    Nothing: at ratio 1 no token is clipped. Of older rollouts nothing bounds what they do.
What to do
    Leave it out, or take several steps on a batch. Asynchronously: a ratio to the sampler's probabilities.
What decides
    The clip fraction of the first steps.
Sources
    slime and OpenRLHF 0.11, their losses, August 2026: https://github.com/THUDM/slime
    SkyRL #1315: https://github.com/NovaSky-AI/SkyRL/issues/1315
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
    "slime": ("eps_clip", "eps_clip_high"),
    "openrlhf": ("actor.eps_clip", "actor.eps_clip_low_high", "eps_clip", "eps_clip_low_high"),
    "ms-swift": ("epsilon", "epsilon_high", "delta"),
}
"""The keys of the clip range."""


_TO_OTHERS = ("use_vllm", "algorithm.rollout_correction.bypass_mode", "use_rollout_logprobs", "keep_old_actor",
              "train_async", "train.async_enable", "async_train")  # fmt: skip
"""Switches with which the ratio is to other probabilities than those of the policy before the update."""

ASYNC, LOSS, CORRECTED = "trainer.fully_async.", "trainer.algorithm.policy_loss_type", ("off_policy_correction", "tis")
"""SkyRL's keys of asynchronous training, of its loss, and parts of those that correct for the weights that drew."""

OF_OLD = ("regular", "dual_clip")
"""Losses of SkyRL whose ratio is to the trainer's own probabilities."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A clip range other than the default beside one step on a batch; TRL's vLLM and cispo have other uses for it."""
    if config.dialect.name == "skyrl":
        yield from _asynchronous(config)
        return
    if any(map(config.on, _TO_OTHERS)) or "cispo" in (config.get("loss_type"), config.get("advantage_estimator")):
        return
    chosen = [
        key
        for key in KEYS[config.dialect.name]
        if config.says(key) and config.get(key) not in (None, config.dialect.defaults.get(key), 0.2)
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


def _asynchronous(config: Settings) -> Iterator[Finding]:
    """SkyRL's fully asynchronous training with a ratio to the trainer's own probabilities and no correction."""
    asynchronous = [key for key in config.given if key.startswith(ASYNC)]
    corrected = any(part in key for key in config.given for part in CORRECTED)
    if not asynchronous or corrected or config.get(LOSS) not in OF_OLD:
        return
    yield fact(
        True,
        f"fully asynchronous training keeps no older weights, so that the ratio of the loss {config.get(LOSS)} is to "
        "the trainer's own probabilities: nothing is clipped, and nothing corrects for the weights that drew",
        config.signs(LOSS, *asynchronous[:1]),
        grade="warning",
        explains=("kl blow-up", "gradient explosion"),
        brief="no clip in asynchronous training",
        remedy=f"set {LOSS} to one that takes the sampler's log-probabilities, or switch off_policy_correction on",
    )


FAULT = Fault(
    name="idle clip range",
    rank=5.2,
    remedy="leave it out, or take several steps on a batch",
    settings=SettingsCheck(
        "idle clip range",
        _settings,
        ("trl", "verl", "skyrl", "slime", "openrlhf", "ms-swift"),
        "a clip range where each batch is used once, or that asynchronous training leaves without effect",
        ("warning", "note"),
    ),
)
