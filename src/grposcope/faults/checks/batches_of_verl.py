"""Batch sizes of verl: prompts × n by GPUs, mini-batches within a batch and over the ranks, micro-batches in those."""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.signs.settings.verl import ACTOR, REPLICA, ROLLOUT, gpus, on_megatron, ranks

BATCH, MINI, GROUP = "data.train_batch_size", ACTOR + "ppo_mini_batch_size", ROLLOUT + "n"
DYNAMIC = ACTOR + "use_dynamic_bsz"
DEVICES = ("trainer.n_gpus_per_node", "trainer.nnodes")


def settings(config: Settings) -> Iterator[Finding]:
    """Sizes that do not divide, and micro-batches that verl refuses."""
    batch, mini, group = (config.whole(key) for key in (BATCH, MINI, GROUP))
    if batch is None or mini is None or group is None:
        unknown = [key for key in (BATCH, MINI, GROUP) if config.whole(key) is None]
        yield cannot_tell(f"{', '.join(unknown)} is not known", *unknown)
        return
    yield from _mini_batches(config, batch, mini)
    devices = gpus(config)
    if devices is None:
        yield cannot_tell("the number of GPUs is not known", *DEVICES)
        return
    opaque = [ACTOR + key for key in REPLICA[on_megatron(config)] if ACTOR + key in config.opaque]
    if opaque:
        yield cannot_tell(f"{', '.join(opaque)} is not known", *opaque)
        return
    yield from _over_gpus(config, batch * group, mini * group, devices)
    tensor = config.whole(ROLLOUT + "tensor_model_parallel_size")
    if tensor and devices % tensor:
        yield fact(
            True,
            f"{devices} GPUs are not a multiple of the {tensor} GPUs of a replica",
            config.signs(ROLLOUT + "tensor_model_parallel_size", *DEVICES),
            fault="indivisible gpus",
            grade="failing",
            brief="the rollout engine does not fit the GPUs",
            remedy="choose a size that divides the GPUs",
        )


def _mini_batches(config: Settings, batch: int, mini: int) -> Iterator[Finding]:
    """Mini-batches of prompts in a batch of them."""
    if batch == 0:
        yield cannot_tell(f"{BATCH} is 0, as where rollouts stream in asynchronously", BATCH)
    elif batch < mini:
        fixed = config.off(DYNAMIC)
        yield fact(
            True,
            f"a batch of {batch} prompts cannot hold a mini-batch of {mini}" + ": verl refuses to start" * fixed,
            config.signs(BATCH, MINI),
            grade="failing" if fixed else "warning",
            brief="the mini-batch is larger than the batch",
            remedy=f"set {MINI} to {batch} or less",
        )
    elif batch % mini:
        yield fact(
            True,
            f"{batch} prompts leave {batch % mini} after {batch // mini} mini-batches of {mini}; depending on "
            "the version, the rest becomes a smaller step or is dropped",
            config.signs(BATCH, MINI),
            grade="warning",
            brief="the batch does not divide into mini-batches",
            remedy=f"choose {MINI} so that it divides {batch}",
        )


def _over_gpus(config: Settings, rollouts: int, mini: int, devices: int) -> Iterator[Finding]:
    """Rollouts of a batch over the GPUs, those of a mini-batch over the data-parallel ranks, and micro-batches."""
    fixed, megatron, shards = config.off(DYNAMIC), on_megatron(config), ranks(config)
    batch, prompts, group = (config.whole(key) for key in (BATCH, MINI, GROUP))
    if fixed and not megatron and rollouts % devices:
        yield fact(
            True,
            f"{batch} × {group} = {rollouts} rollouts on {devices} GPUs: verl refuses to start",
            config.signs(BATCH, GROUP, *DEVICES),
            grade="failing",
            brief="rollouts do not divide among the GPUs",
            remedy=f"choose {BATCH} × {GROUP} as a multiple of {devices}",
        )
    if not shards:
        sizes = [ACTOR + key for key in REPLICA[megatron] if config.whole(ACTOR + key)]
        yield fact(
            True,
            f"{devices} GPUs are not a multiple of the size of one replica",
            config.signs(*sizes, *DEVICES),
            fault="indivisible gpus",
            grade="failing",
            brief="the GPUs do not divide into replicas of the model",
            remedy="choose sizes whose product divides the GPUs",
        )
    elif mini % shards:
        yield fact(
            True,
            f"{prompts} × {group} = {mini} rollouts on {shards} data-parallel ranks: the first update fails",
            config.signs(MINI, GROUP, *DEVICES),
            grade="failing",
            brief="mini-batches do not divide among the GPUs",
            remedy=f"choose {MINI} × {GROUP} as a multiple of {shards}",
        )
    elif fixed:
        yield from _micro_batches(config, mini // shards)


def _micro_batches(config: Settings, share: int) -> Iterator[Finding]:
    """Micro-batches of the rollouts that a rank has of a mini-batch."""
    old, key = ACTOR + "ppo_micro_batch_size", ACTOR + "ppo_micro_batch_size_per_gpu"
    micro = config.whole(key)
    if {old, key} <= config.given.keys() and not config.says(old) and not config.says(key):
        yield cannot_tell(f"{key} is null, as in verl's own file, which a command line completes", key)
    elif not config.says(old) and not config.says(key):
        yield fact(True, "without use_dynamic_bsz verl refuses to start until one is set", config.signs(DYNAMIC),
                   fault="refused settings", grade="failing", brief="no micro-batch size",
                   remedy=f"set {key}, or {DYNAMIC}=True")  # fmt: skip
    elif config.says(old) and config.says(key):
        yield fact(True, "verl refuses both at once", config.signs(old, key), fault="refused settings",
                   grade="failing", brief="two micro-batch sizes", remedy=f"leave out {old}")  # fmt: skip
    elif micro and share % micro:
        yield fact(
            True,
            f"a GPU has {share} rollouts of each mini-batch, not a multiple of {micro}: the first update fails",
            config.signs(key, MINI, GROUP),
            grade="failing",
            brief="micro-batches do not divide",
            remedy=f"choose {key} so that it divides {share}",
        )
