"""ms-swift: logging.jsonl, its console and trainer_state.json, with TRL's keys and some of its own.

    {"loss": 0.01, "reward": 0.5, …, "global_step/max_steps": "5/200", "elapsed_time": "5m 3s"}

The step is a text, that of Megatron runs `iteration`. `reward_std` is within groups unless scale_rewards=batch;
`rollout_correction/…` compares trainer and sampler before any cap or mask, but `is_weight_mean` and `ess` are of the
weights in use. `rollout_correction/chi2_seq` is of geometric means over a sequence, so it keeps its name.

Settings are those of args.json in the output folder or beside the log; the rollouts are in completions.jsonl
(`ms_swift_completions`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grposcope.core.metrics import LOGGED
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats.jsonl import objects
from grposcope.logs.formats.kind import LINES, Fields, LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.trainers import ms_swift_completions, trl
from grposcope.logs.trainers.ms_swift_completions import arguments
from grposcope.logs.trainers.trainer import Columns, Definitions, Setting, Settings
from grposcope.logs.trainers.trl import TRL

LOG = "logging.jsonl"
"""The log, in the output folder."""

STEPS = ("global_step/max_steps", "iteration")
"""Keys whose text is the step, a slash, and the number of steps that are planned."""

_STEP = re.compile(r"(?P<step>\d{1,15})/(?P<planned>\d{1,15})")


_SPEEDS = ("train_speed(s/it)", "elapsed_time")
_ROWS: tuple[Fields, ...] = tuple({key: _STEP, speed: object} for key in STEPS for speed in _SPEEDS)


def _step_of(row: Mapping[str, Any]) -> int | None:
    """The step that a row says in words, "5/200"; None for a row of anybody else."""
    texts = (row.get(key) for key in STEPS)
    matches = (_STEP.fullmatch(text) for text in texts if isinstance(text, str))
    return next((int(match["step"]) for match in matches if match), None)


def _read_lines(file: LogFile, hints: Hints) -> RawLog:
    """The rows of a logging.jsonl with their steps; the texts about time and progress are left out."""
    rows = ColumnBuilder()
    for line, row in objects(file):
        step = _step_of(row)
        numbers = {key: value for key, value in row.items() if not isinstance(value, str)}
        if "log_history" not in row:  # the last line of a run, which has all rows once more
            rows.row(line, numbers if step is None else {**numbers, "step": step})
    return _with_arguments(RawLog(file.path, rows, "ms-swift", notes=file.notes), file.path.parent)


def _read_folder(folder: LogFile, hints: Hints) -> RawLog:
    """An output folder by its log, with the groups of its completions; without a log, or a checkpoint, by its state."""
    path = folder.path
    if (path / LOG).is_file():
        log = _read_lines(LogFile(path / LOG), hints)
    else:
        log = _with_arguments(replace(trl.read_folder(folder, hints), engine="ms-swift"), path)
    completions = ms_swift_completions.find(path)
    if completions is not None:
        log.groups, where, notes = completions.groups()
        log.rollouts = completions.texts(where)
        log.notes += notes
    return replace(log, source=path, name=path.resolve().name)


def _with_arguments(log: RawLog, folder: Path) -> RawLog:
    """The log with the arguments of its run, where ms-swift wrote them into the folder."""
    settings = arguments(folder)
    if not settings:
        return log
    every, last = settings.get("logging_steps"), settings.get("max_steps")
    window = int(every) if isinstance(every, int | float) and 1 <= every < 2**53 else None
    if window and window > 1 and log.window is None:
        log.notes.append(
            f"each row is the mean over {window} steps (logging_steps), so spikes and variances are damped"
        )
    settings["max_steps"] = last if isinstance(last, int) and last > 0 else None  # -1: as many as the epochs have
    return replace(log, logged={**settings, **log.logged}, window=log.window or window)


def _is_output(folder: Path) -> bool:
    return bool(arguments(folder)) and ((folder / LOG).is_file() or bool(trl.state_files(folder)))


def _define(columns: Columns, settings: Settings, window: int) -> Definitions:
    """Metrics of keys whose meaning depends on settings or values: reward_std, kl."""
    defined: dict[str, str] = {}
    notes: list[str] = []
    if "reward_std" in columns:
        batchwise = settings.get("scale_rewards") == "batch"
        defined["reward_std"] = "reward_std_batch" if batchwise else "reward_std"
        if "scale_rewards" not in settings:
            notes.append(
                "reward_std is read as the spread within groups; with scale_rewards=batch it would be that of the batch"
            )
    if "kl" in columns and bool((columns["kl"] < -1e-6).any()):
        defined["kl"] = "kl_k1"
        notes.append("kl is the k1 estimate, as with kl_in_reward: it has negative values")
    return defined, notes


MS_SWIFT = replace(
    TRL,
    name="ms-swift",
    title="ms-swift",
    recognises=lambda keys: (
        "rollout_correction/k3_kl" in keys or {"completions/mean_length", "entropy/mean"} <= keys
    ),
    keys={
        **{metric: keys for metric, keys in TRL.keys.items() if metric in ("reward_std_unclear", "reward") or
           metric not in LOGGED or not metric.startswith(("mismatch/", "importance/", "staleness/"))},
        "entropy": ("entropy/mean", "entropy"),
        "mismatch/k1": ("rollout_correction/kl",),
        "mismatch/k3": ("rollout_correction/k3_kl",),
        "mismatch/chi2_token": ("rollout_correction/chi2_token",),
        "importance/weight": ("rollout_correction/is_weight_mean",),
        "importance/ess": ("rollout_correction/ess",),
        "importance/out_of_bounds": ("rollout_correction/clipped_frac",),
        "agent/turns": ("num_turns",),
    },
    made=None,
    define=_define,
    version="4.6.0",
    configured=lambda keys: "rlhf_type" in keys,
    settings=(
        Setting("num_generations", "group", 8),
        Setting("learning_rate", "lr"),
        Setting("lr", "lr"),
        Setting("temperature", "temperature", 0.9),
        Setting("beta", "kl", 0.04),
        Setting("max_completion_length", "max_tokens", 512),
        Setting("epsilon", "clip_low", 0.2),
        Setting("num_iterations", "interval", 1),
        Setting("loss_type", "loss_type"),
        Setting("scale_rewards", "scale_rewards"),
        Setting("gradient_accumulation_steps", "accumulation", 1),
        Setting("tuner_type", default="lora"),
        Setting("top_p", "top_p", 1.0),
        Setting("top_k", "top_k", -1),
        Setting("max_length", "max_prompt"),
        Setting("vllm_max_model_len", "room"),
        Setting("max_steps", "steps"),
        Setting("warmup_steps", "warmup"),
        Setting("lr_scheduler_type", "schedule", "cosine"),
        Setting("per_device_train_batch_size", default=1),
        Setting("importance_sampling_level", default="token"),
        Setting("dynamic_sample", default=False),
        Setting("advantage_estimator", "advantage", "grpo"),
        Setting("async_generate", default=False),
    ),
    defects=(),
    leaves_files_of="trl",
    logs=(
        LogKind(_read_lines, shapes=LINES, rows=_ROWS),
        LogKind(_read_folder, folder=_is_output), ms_swift_completions.KIND,
    ),
    how_to_log={
        **TRL.how_to_log,
        "groups": "log_completions=True",
        "entropy": "log_entropy=True",
        "agent/turns": "num_turns, with a multi-turn scheduler",
        "mismatch": "rollout_importance_sampling_mode, or log_rollout_offpolicy_metrics=True",
    },
)  # fmt: skip
"""Everything that is known of ms-swift."""
