"""The settings of `grposcope train` as arguments of TRL's GRPOConfig, and options of TRL's own beside them.

A step of ours takes P·G / minibatches rollouts. TRL splits them over the processes and over forward passes:

    per_device_train_batch_size × processes × gradient_accumulation_steps = P·G / minibatches
    steps_per_generation = gradient_accumulation_steps × minibatches        num_iterations = interval / minibatches

TRL deals rows, not whole groups, to minibatches and processes; their expectation is the same.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from grposcope import credit
from grposcope.errors import UserError
from grposcope.training.config import TrainConfig

SETTING_OF = {
    "adam_beta1": "momentum",
    "adam_beta2": "beta2",
    "beta": "kl",
    "bf16": "dtype",
    "data_seed": "seed",
    "entropy_coef": "entropy",
    "epsilon": "clip_low",
    "epsilon_high": "clip_high",
    "fp16": "dtype",
    "generation_batch_size": "prompts",
    "gradient_accumulation_steps": "micro_batch",
    "gradient_checkpointing": "checkpointing",
    "importance_sampling_level": "recipe",
    "learning_rate": "lr",
    "loss_type": "recipe",
    "lr_scheduler_type": "schedule",
    "max_completion_length": "max_tokens",
    "max_grad_norm": "clip_grad",
    "max_steps": "steps",
    "num_generations": "group",
    "num_iterations": "interval",
    "num_train_epochs": "steps",
    "optim": "optimizer",
    "output_dir": "out",
    "per_device_train_batch_size": "micro_batch",
    "report_to": "log_to",
    "save_steps": "checkpoint_every",
    "save_total_limit": "keep_checkpoints",
    "scale_rewards": "advantage",
    "seed": "seed",
    "steps_per_generation": "minibatches",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "trust_remote_code": "remote_code",
    "use_cpu": "device",
    "warmup_ratio": "warmup",
    "warmup_steps": "warmup",
    "weight_decay": "weight_decay",
}
"""Argument of GRPOConfig -> the setting of ours that decides it, which is to be given in its place."""

FIXED = {
    "do_eval": "the held-out problems are evaluated as in any other run, by eval_every",
    "eval_strategy": "the held-out problems are evaluated as in any other run, by eval_every",
    "log_completions": "the record needs every batch",
    "logging_steps": "the record has a row per step",
    "logging_strategy": "the record has a row per step",
    "remove_unused_columns": "the task's problems travel in a column",
    "resume_from_checkpoint": "resume the run's folder",
    "save_strategy": "checkpoints are taken by checkpoint_every",
}
"""Argument of GRPOConfig that a run of ours needs as it is -> why."""

FOLLOWED = frozenset({
    "model", "task", "reward", "reward_timeout", "reward_errors", "recipe", "out", "seed", "steps", "prompts",
    "group", "interval", "minibatches", "allocate", "micro_batch", "max_tokens", "temperature", "top_p", "top_k",
    "optimizer", "lr", "momentum", "beta2", "weight_decay", "schedule", "warmup", "clip_grad", "advantage",
    "credit", "kl", "divergence", "entropy", "clip_low", "clip_high", "eval_every", "eval_problems",
    "eval_samples", "eval_temperature", "checkpoint_every", "keep_checkpoints", "probe_every", "probe_prompts",
    "log_to", "dtype", "device", "threads", "checkpointing", "remote_code",
})  # fmt: skip
"""Settings that a run of TRL follows; any other, a new one too, is refused there unless it has its default."""

NOT_FOLLOWED = {
    "rollouts_every": "single rollouts are kept by TRL in completions/, every step",
    "rollouts_groups": "single rollouts are kept by TRL in completions/, all of them",
    "sampler_precision": "TRL samples in the model's own number format",
}
"""Settings that a run of TRL does not follow -> why, where that is known."""

PEFT = ("use_peft", "use_rslora", "use_dora")
"""Arguments of TRL's ModelConfig that are taken too, with those that begin with `lora_`."""


def batch_arguments(config: TrainConfig, micro_batch: int, processes: int) -> dict[str, int]:
    """How a batch is cut over processes and forward passes of at most `micro_batch` rollouts; UserError if it cannot.

    The rollouts of a forward pass are the largest divisor of a process's share that is no more than `micro_batch`.
    """
    if config.group < 2:
        raise UserError("group is 1, and TRL needs groups of 2 or more; raise it, or use engine grposcope")
    rollouts = config.prompts * config.group // config.minibatches
    if rollouts % processes:
        raise UserError(
            f"a step takes {rollouts} rollouts (prompts {config.prompts} × group {config.group} / minibatches "
            f"{config.minibatches}), which {processes} processes cannot share evenly; make it a multiple of {processes}"
        )
    share = rollouts // processes
    at_once = max(n for n in range(1, min(micro_batch, share) + 1) if share % n == 0)
    passes = share // at_once
    return {
        "per_device_train_batch_size": at_once,
        "gradient_accumulation_steps": passes,
        "steps_per_generation": passes * config.minibatches,
        "num_generations": config.group,
        "num_iterations": config.interval // config.minibatches,
    }


def run_arguments(config: TrainConfig, lr: float, on_cpu: bool) -> dict[str, Any]:
    """Sampling, optimiser, logging and checkpoints, as GRPOConfig calls them."""
    from grposcope.training import loggers

    every = config.checkpoint_every
    return {
        "temperature": config.temperature, "top_p": config.top_p, "top_k": config.top_k,
        "learning_rate": lr, "adam_beta1": config.momentum, "adam_beta2": config.beta2,
        "weight_decay": config.weight_decay, "max_grad_norm": config.clip_grad, "max_steps": config.steps,
        "seed": config.seed, "use_cpu": on_cpu, "bf16": False, "gradient_checkpointing": config.checkpointing,
        "disable_dropout": True, "report_to": loggers.names(config.log_to) or "none",
        "logging_steps": 1, "log_completions": True, "num_completions_to_print": 0, "disable_tqdm": True,
        "save_strategy": "steps" if every else "no", **({"save_steps": every} if every else {}),
        "save_total_limit": config.keep_checkpoints or None, "dataloader_pin_memory": not on_cpu,
    }  # fmt: skip


def refuse_without_counterpart(config: TrainConfig) -> None:
    """UserError for a setting that was changed from its default and that TRL, or its record, has no counterpart for."""
    for setting in dataclasses.fields(config):
        if setting.name not in FOLLOWED and getattr(config, setting.name) != setting.default:
            why = f": {NOT_FOLLOWED[setting.name]}" if setting.name in NOT_FOLLOWED else ""
            raise UserError(
                f"{setting.name} has no counterpart in a run of TRL{why}; leave it out, or use engine grposcope"
            )
    if credit.chosen(config.credit).source.needs:
        raise UserError(
            f"credit {config.credit} needs a further pass of a model over every batch, which TRL's trainer does not "
            "make; use engine grposcope"
        )
    if config.reward_errors == "drop":
        raise UserError(
            "reward_errors drop would leave groups of several sizes, which TRL's batches cannot have; use "
            "reward_errors zero, or engine grposcope"
        )


def parse(pairs: Iterable[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Options of TRL given as key=value: JSON, or True, False and None as in Python, or else text.

    known: names of GRPOConfig and ModelConfig -> their types. UserError, with the nearest name, for an unknown key, for
    one that a setting of ours decides, and for a value of another type.
    """
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UserError(f"trl {pair!r} is no option; write key=value")
        if key in SETTING_OF:
            raise UserError(f"trl {key}: the setting {SETTING_OF[key]} decides it; give that instead")
        if key in FIXED:
            raise UserError(f"trl {key} cannot be changed: {FIXED[key]}; leave it out")
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UserError(f"trl {key}: GRPOConfig of the installed TRL has no such argument{hint}")
        given[key] = _value(key, text.strip(), known[key])
    return given


def known_options(*configs: type) -> dict[str, Any]:
    """Argument -> its type, of GRPOConfig and of the PEFT part of ModelConfig."""
    first, *others = configs
    types_of = _types(first)
    for other in others:
        types_of |= {name: kind for name, kind in _types(other).items() if name in PEFT or name.startswith("lora_")}
    return types_of


def _types(config: type) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(config)
    except Exception:  # a type that only type checkers see
        hints = {}
    return {field.name: hints.get(field.name, Any) for field in dataclasses.fields(config) if field.init}


def _value(key: str, text: str, kind: Any) -> Any:
    words = {"True": True, "False": False, "None": None}
    try:
        value = words[text] if text in words else json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if _fits(value, kind):
        return value
    if _fits(text, kind):  # a text that looks like JSON
        return text
    raise UserError(f"trl {key}={text}: TRL wants {_described(kind)} here")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a JSON value may stand where `kind` is asked for; what this cannot tell is left to TRL."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return any(_fits(value, part) for part in typing.get_args(kind))
    plain = typing.get_origin(kind) or kind
    if plain is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if plain is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if plain in (bool, str, list, dict, type(None)):
        return isinstance(value, plain)
    return True


def _described(kind: Any) -> str:
    parts = typing.get_args(kind) if not isinstance(kind, type) else (kind,)
    return " or ".join(str(getattr(part, "__name__", part)) for part in parts) or str(kind)
