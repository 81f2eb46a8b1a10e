"""Batch sizes that do not divide: what the trainers check only after the models are loaded, or not at all."""

from __future__ import annotations

import math
from collections.abc import Iterator

from grposcope.core.finding import Grade
from grposcope.instruments.lint.checks.derived import (
    ACTOR,
    REPLICA,
    ROLLOUT,
    generation_steps,
    gpus,
    is_off,
    on_megatron,
    ranks,
)
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold


def trl_batches(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """TRL: whole groups in a batch of rollouts, a whole number of passes, whole groups in evaluation."""
    each, group, world = config.whole("per_device_train_batch_size"), config.group, known.world
    batch = "generation_batch_size"
    if config.on("auto_find_batch_size"):
        yield Fault("failing", "TRL refuses auto_find_batch_size", "a smaller batch would split groups",
                      "set it to False and choose per_device_train_batch_size", ("auto_find_batch_size",))  # fmt: skip
    if config.says(batch) and config.says("steps_per_generation") and not config.resolved:
        yield Fault("failing", "TRL refuses both", "generation_batch_size and steps_per_generation say the same thing",
                      "leave one of them out", (batch, "steps_per_generation"))  # fmt: skip
        return
    if each is None or not group:
        yield Untold("the batch size of a process or the group size is not known")
        return
    whole = config.whole(batch)
    keys: tuple[str, ...]
    if whole is not None:
        keys = (batch, "num_generations")
        if whole % group:
            yield _not_whole(f"a batch of {whole} rollouts", group, f"set {batch} to a multiple of {group}", keys)
        if world and whole % (each * world):
            yield Fault("failing", "batches do not divide", f"{whole} rollouts cannot be split into passes of {each} "
                          f"on "
                          f"{world} processes", f"set {batch} to a multiple of {each * world}",
                          (batch, "per_device_train_batch_size"))  # fmt: skip
    else:
        yield from _from_processes(config, each, group, world)
    if config.get("eval_strategy") not in ("no", None) and config.get("do_eval") is not False:
        yield from _evaluation(config, group, world)


def _from_processes(config: TrainerConfig, each: int, group: int, world: int | None) -> Iterator[Fault | Untold]:
    """The batch of rollouts is a process's batch × processes × passes."""
    steps = generation_steps(config)
    if steps is None:
        yield Untold("the passes on a batch of rollouts are not known")
        return
    passes = "steps_per_generation" if config.says("steps_per_generation") else "gradient_accumulation_steps"
    keys = ("per_device_train_batch_size", passes, "num_generations")
    least = group // math.gcd(group, each * steps)
    if world:
        size = each * steps * world
        if size % group:
            yield _not_whole(f"a batch of {each} × {steps} × {world} processes = {size} rollouts", group,
                             f"choose {keys[0]} × {passes} × processes as a multiple of {group}", keys)  # fmt: skip
    elif least > 1:
        grade: Grade = "note" if least <= 8 else "warning"
        yield Fault(
            grade,
            "only some numbers of processes work",
            f"{each} × {steps} rollouts per process are not a multiple of {group}: TRL starts only with a "
            f"multiple of {least} processes",
            f"start such a number, or choose {keys[0]} × {passes} as a multiple of {group}",
            keys,
        )


def _evaluation(config: TrainerConfig, group: int, world: int | None) -> Iterator[Fault | Untold]:
    each, of = config.whole("per_device_eval_batch_size"), config.whole("num_generations_eval") or group
    keys = ("eval_strategy", "per_device_eval_batch_size", "num_generations")
    if each is None:
        return
    if world and each * world % of:
        yield _not_whole(f"an evaluation batch of {each * world} rollouts", of,
                         f"set per_device_eval_batch_size × processes to a multiple of {of}", keys)  # fmt: skip
    elif not world and each % of:
        least = of // math.gcd(of, each)
        yield Fault(
            "note" if least <= 8 else "warning",
            "evaluation works only on some numbers of processes",
            (
                f"{each} rollouts per process are not a multiple of {of}: evaluation needs a multiple of {least} "
                "processes"
            ),
            f"start such a number, or set per_device_eval_batch_size to a multiple of {of}",
            keys,
        )


def _not_whole(what: str, group: int, change: str, keys: tuple[str, ...]) -> Fault:
    return Fault(
        "failing",
        "groups do not fit the batch",
        f"{what} is not a multiple of the group size {group}, and TRL refuses to start",
        change,
        keys,
    )


def verl_batches(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """verl: prompts × n by GPUs, mini-batches within a batch and over the GPUs, micro-batches within those."""
    keys = ("data.train_batch_size", ACTOR + "ppo_mini_batch_size", ROLLOUT + "n")
    batch, mini, group = (config.whole(key) for key in keys)
    if batch is None or mini is None or group is None:
        yield Untold(f"{', '.join(key for key in keys if config.whole(key) is None)} is not known")
        return
    fixed = is_off(config, ACTOR + "use_dynamic_bsz")
    if batch < mini:
        if fixed:
            yield Fault("failing", "the mini-batch is larger than the batch", f"a batch of {batch} "
                          f"prompts cannot hold a mini-batch of {mini}: verl refuses to start",
                          f"set {keys[1]} to {batch} or less", keys[:2])  # fmt: skip
        else:
            yield Fault("warning", "the mini-batch is larger than the batch", f"a batch of {batch} "
                          f"prompts cannot hold a mini-batch of {mini}",
                          f"set {keys[1]} to {batch} or less", keys[:2])  # fmt: skip
    elif batch % mini:
        yield Fault(
            "warning",
            "the batch does not divide into mini-batches",
            f"{batch} prompts leave {batch % mini} after {batch // mini} mini-batches of {mini}; depending on "
            "the version, the rest becomes a smaller step or is dropped",
            f"choose {keys[1]} so that it divides {batch}",
            keys[:2],
        )
    devices = gpus(config)
    if devices is None:
        yield Untold("the number of GPUs is not known")
        return
    where = ("trainer.n_gpus_per_node", "trainer.nnodes")
    parallel = tuple(ACTOR + key for key in REPLICA[on_megatron(config)])
    if any(key in config.opaque for key in parallel):
        yield Untold(f"{', '.join(key for key in parallel if key in config.opaque)} is not known")
        return
    if fixed and not on_megatron(config) and batch * group % devices:
        yield Fault("failing", "rollouts do not divide among the GPUs", f"{batch} × {group} = {batch * group} "
                      f"rollouts on "
                      f"{devices} GPUs: verl refuses to start", f"choose {keys[0]} × {keys[2]} as a multiple of "
                      f"{devices}",
                      (keys[0], keys[2], *where))  # fmt: skip
    parts = ranks(config)
    if not parts:
        yield Fault(
            "failing",
            "the GPUs do not divide into replicas of the model",
            f"{devices} GPUs are not a multiple of the size of one replica",
            "choose sizes whose product divides the GPUs",
            (*(key for key in parallel if config.whole(key)), *where),
        )
    elif mini * group % parts:
        yield Fault("failing", "mini-batches do not divide among the GPUs", f"{mini} × {group} = {mini * group} "
                      f"rollouts "
                      f"on {parts} data-parallel ranks: the first update fails", f"choose {keys[1]} × {keys[2]} as a "
                      f"multiple of {parts}", (keys[1], keys[2], *where))  # fmt: skip
    elif fixed:
        yield from _micro_batches(config, mini * group // parts)
    tensor = config.whole(ROLLOUT + "tensor_model_parallel_size")
    if tensor and devices % tensor:
        yield Fault(
            "failing",
            "the rollout engine does not fit the GPUs",
            f"{devices} GPUs are not a multiple of the {tensor} GPUs of a replica",
            "choose a size that divides the GPUs",
            (ROLLOUT + "tensor_model_parallel_size", *where),
        )


def _micro_batches(config: TrainerConfig, share: int) -> Iterator[Fault | Untold]:
    """Micro-batches of the rollouts that a rank has of a mini-batch."""
    old, key = ACTOR + "ppo_micro_batch_size", ACTOR + "ppo_micro_batch_size_per_gpu"
    micro = config.whole(key)
    if not config.says(old) and not config.says(key):
        yield Fault("failing", "no micro-batch size", "without use_dynamic_bsz verl refuses to start until one is set",
                      f"set {key}, or {ACTOR}use_dynamic_bsz=True", (ACTOR + "use_dynamic_bsz",))  # fmt: skip
    elif config.says(old) and config.says(key):
        yield Fault("failing", "two micro-batch sizes", "verl refuses both at once", f"leave out {old}",
                      (old, key))  # fmt: skip
    elif micro and share % micro:
        yield Fault(
            "failing",
            "micro-batches do not divide",
            f"a GPU has {share} rollouts of each mini-batch, not a multiple of {micro}: the first update fails",
            f"choose {key} so that it divides {share}",
            (key, ACTOR + "ppo_mini_batch_size", ROLLOUT + "n"),
        )


def nemo_batches(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """NeMo-RL: the rollouts of a step are a whole number of training batches."""
    prompts, part = "grpo.num_prompts_per_step", "policy.train_global_batch_size"
    count, size, group = config.whole(prompts), config.whole(part), config.group
    if not (count and size and group):
        yield Untold(f"{prompts}, {part} or the group size is not known")
    elif count * group % size:
        yield Fault(
            "failing",
            "batches do not divide",
            f"{count} × {group} = {count * group} rollouts are not a multiple of the training batch of {size}",
            f"choose {part} so that it divides {count * group}",
            (prompts, part),
        )
