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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grposcope.core import capabilities
from grposcope.core.errors import UserError
from grposcope.engines.trl import guard
from grposcope.lab.train.config import InTrl, TrainConfig, parts
from grposcope.maths.aggregation import METHODS

SETTING_OF = {
    argument: setting.name
    for setting in dataclasses.fields(TrainConfig)
    if isinstance(counterpart := setting.metadata["trl"], InTrl)
    for argument in counterpart.arguments
}
"""Argument of GRPOConfig -> the setting of ours that decides it, which is to be given in its place."""

FIXED = {
    "do_eval": "the held-out problems are evaluated as in any other run, by eval_every",
    "eval_strategy": "the held-out problems are evaluated as in any other run, by eval_every",
    "log_completions": "the record needs every batch",
    "logging_steps": "the record has a row per step",
    "logging_strategy": "the record has a row per step",
    "remove_unused_columns": "the task's problems are passed in a column",
    "resume_from_checkpoint": "resume the run's folder",
    "save_strategy": "checkpoints are taken by checkpoint_every",
}
"""Argument of GRPOConfig that a run of ours needs as it is -> why."""

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
    from grposcope.watch import loggers

    every = config.checkpoint_every
    same = {
        counterpart.arguments[0]: getattr(config, setting.name)
        for setting in dataclasses.fields(config)
        if isinstance(counterpart := setting.metadata.get("trl"), InTrl) and counterpart.same
    }
    return {
        **same, "learning_rate": lr, "use_cpu": on_cpu, "bf16": False, "disable_dropout": True,
        "report_to": loggers.names(config.log_to) or "none", "logging_steps": 1, "log_completions": True,
        "num_completions_to_print": 0, "disable_tqdm": True,
        "save_strategy": "steps" if every else "no", **({"save_steps": every} if every else {}),
        "save_total_limit": config.keep_checkpoints or None, "dataloader_pin_memory": not on_cpu,
    }  # fmt: skip


def reward_arguments(
    config: TrainConfig, weights: Sequence[float], overlong: bool
) -> tuple[dict[str, Any], str | None]:
    """How TRL weighs and combines the rewards of a task, and the aggregation that is left to our trainer.

    weights: of the task's rewards, empty where it has one. overlong: whether a penalty for overlong completions is
    added. UserError for a constraint on the whole reward where it is.
    """
    if overlong and any(constraint.name == "reward" for constraint in config.constraints()):
        raise UserError(
            f"recipe {config.recipe} adds a penalty for overlong completions to the reward, and in TRL the constraint "
            f"{config.constraint} would include it; name one of the rewards, or use engine grposcope"
        )
    arguments: dict[str, Any] = {"reward_weights": [*weights, *([1.0] if overlong else [])]} if weights else {}
    if config.aggregation == "normalize_then_sum":
        return {**arguments, "multi_objective_aggregation": config.aggregation}, None
    return arguments, None if config.aggregation == METHODS[0] else config.aggregation


def refuse_without_counterpart(config: TrainConfig, processes: int = 1) -> None:
    """UserError for a setting changed from its default that TRL has no counterpart for, or for what a part needs."""
    for setting in dataclasses.fields(config):
        counterpart = setting.metadata.get("trl", "")
        if isinstance(counterpart, str) and getattr(config, setting.name) != setting.default:
            why = f": {counterpart}" if counterpart else ""
            raise UserError(
                f"{setting.name} has no counterpart in a run of TRL{why}; leave it out, or use engine grposcope"
            )
    capabilities.check(guard.engine(processes), *parts(config))


def parse(pairs: Iterable[str], names: Mapping[str, Any]) -> dict[str, Any]:
    """Options of TRL given as key=value: JSON, or True, False and None as in Python, or else text.

    known: names of GRPOConfig and ModelConfig -> their types. UserError, with the nearest name, for an unknown key, for
    one that a setting of ours decides, and for a value of another type.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UserError(f"trl {pair!r} is not an option; write key=value")
        if key in SETTING_OF:
            raise UserError(f"trl {key}: the setting {SETTING_OF[key]} decides it; give that instead")
        if key in FIXED:
            raise UserError(f"trl {key} cannot be changed: {FIXED[key]}; leave it out")
        if key not in names:
            close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UserError(f"trl {key}: GRPOConfig of the installed TRL has no such argument{hint}")
        values[key] = _value(key, text.strip(), names[key])
    return values


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
    raise UserError(f"trl {key}={text}: TRL expects {_described(kind)} here")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a JSON value may stand where `kind` is asked for; what this cannot tell is left to TRL."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return any(_fits(value, member) for member in typing.get_args(kind))
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
    return " or ".join(str(getattr(member, "__name__", member)) for member in parts) or str(kind)
