"""The sampler draws with weights of a fixed number of updates ago.

What it is
    Weights are sent after the next batch is drawn, or every so many steps, and nothing says so.
How it shows
    The tokens of each step are likelier under the checkpoint so many steps before the one that should have drawn
    them.
What it does to the gradient
    Rollouts are off-policy by that lag: ratios are not 1 at the first update, and what is gained per step shrinks.
What to do
    Send the weights before the batch is drawn; where the lag is meant, state it and correct with recorded
    log-probabilities.
What decides
    Several checkpoints over all rollouts in the order drawn: grposcope verify FOLDER --model RUN.
Sources
    AReaL, staleness: https://arxiv.org/abs/2505.24298
    miles #1829, asynchronous training without a correction: https://github.com/radixark/miles/pull/1829
    miles #2524, several steps on a stale batch: https://github.com/radixark/miles/pull/2524
    method of this project: likelihood ratios between checkpoints"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import checkpoints, weights
from grposcope.signs.settings.recipe import interval

CORRECTIONS = ("use_tis", "use_rollout_logprobs", "keep_old_actor")
"""Settings of slime by which rollouts of older weights are weighed by who drew them."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Asynchronous rollouts that nothing corrects, as the trainer of the settings has them."""
    if config.dialect.name == "slime":
        yield from _slime(config, facts)
        return
    if config.dialect.name == "areal" and not config.on("actor.recompute_logprob"):
        return  # the ratio is then to the log-probabilities of who drew
    switch, corrections, remedy = _ASYNCHRONOUS[config.dialect.name]
    on = config.number(switch) or 0
    if not (config.on(switch) or on > 0) or any(config.get(name) not in (None, False, "") for name in corrections):
        return
    if config.partial or any(name in config.opaque for name in corrections):
        return
    yield fact(
        True,
        f"with {switch} rollouts are drawn while the trainer goes on, by weights of earlier updates, and nothing "
        "weighs them by who drew them",
        config.signs(switch, *corrections),
        grade="warning",
        explains=("sampler mismatch", "growing lag"),
        brief="asynchronous rollouts are not corrected",
        remedy=remedy,
        source=f"settings of {config.dialect.title}, August 2026",
    )


_ASYNCHRONOUS = {
    "openrlhf": ("train.async_enable", ("algo.advantage.is_correction_enable",),
                 "switch algo.advantage.is_correction_enable on"),
    "nemo-rl": ("grpo.async_grpo.enabled", ("loss_fn.use_importance_sampling_correction",),
                "set loss_fn.use_importance_sampling_correction to true, without which NeMo-RL refuses to start"),
    "areal": ("rollout.max_head_offpolicyness", ("actor.use_decoupled_loss",),
              "set actor.use_decoupled_loss to true, with actor.rejection_sampling"),
    "ms-swift": ("async_generate", ("rollout_importance_sampling_mode",),
                 "set rollout_importance_sampling_mode to token_truncate"),
}  # fmt: skip
"""Trainer -> what makes its rollouts asynchronous, what corrects for it, and how to switch that on."""


def _slime(config: Settings, facts: Known) -> Iterator[Finding]:
    """slime's asynchronous loop: a stale batch in several steps, and nothing that corrects for who drew a batch."""
    steps, allowed = interval(config, facts.world), config.whole("max_weight_staleness")
    if allowed is not None and steps is not None and steps > 1:
        yield fact(
            True,
            f"a batch may be {allowed} updates of the sampler old when it is taken (max_weight_staleness), and each is "
            f"used for {steps} optimiser steps, which that number does not count: the last of them is {steps - 1} "
            "steps farther from the weights that drew it",
            config.signs("max_weight_staleness", "global_batch_size", "num_steps_per_rollout"),
            grade="note",
            brief=f"{steps} steps on each stale batch",
            remedy="set global_batch_size to rollout_batch_size × n_samples_per_prompt, so that a batch is used once, "
            "or count these steps in",
            source="miles #2524",
        )
    if not config.on("train_async") or any(config.on(name) for name in CORRECTIONS):
        return
    every = config.whole("update_weights_interval") or 1
    yield fact(
        True,
        f"train_async.py draws each batch before the update on the one before it, with weights that are sent every "
        f"{every} rollouts, and the ratio is taken against log-probabilities that the trainer works out anew: nothing "
        "corrects for the weights that drew",
        config.signs("update_weights_interval", *CORRECTIONS),
        grade="warning",
        explains=("sampler mismatch", "growing lag"),
        brief="asynchronous rollouts are not corrected",
        remedy="turn on use_tis, or use_rollout_logprobs, and get_mismatch_metrics to see what it does",
        source="miles #1829",
    )


FAULT = Fault(
    name="stale sampler",
    rank=1.4,
    remedy="send the trainer's weights to the sampler before it draws, or state the lag and correct for it",
    beside="warning",
    rollouts=(checkpoints.PROOF, weights.PROOF),
    settings=SettingsCheck(
        "stale sampler",
        _settings,
        ("slime", *_ASYNCHRONOUS),
        "asynchronous rollouts without a correction",
        ("warning", "note"),
        "miles #1829; miles #2524",
    ),
)
