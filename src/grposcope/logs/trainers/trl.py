"""TRL: its keys and what they mean by version and settings, its settings, its files, and what it prints.

- trainer_state.json, in an output folder or its checkpoints, perhaps with completions/ (`trl_completions`).
  training_args.bin is a pickle and is never opened, so settings that only it holds have to be given.
- Console output (`trl_console`).
- Notebooks: the table of metrics in the output of a cell.

`sampling/importance_sampling_ratio` is logged after its cap or mask: its mean is what is left of the weight, and its
largest says nothing of larger ones.

The same key is another quantity in another version or under another setting. Where neither settings nor the numbers
decide which, the metric keeps a name that says so, and a note says what is assumed.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import json_number
from grposcope.core.metrics import VARIANTS
from grposcope.core.run import Bools, Floats
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats import notebook
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.trainers import trl_completions, trl_console
from grposcope.logs.trainers.trainer import Columns, Defect, Definitions, Made, Setting, Settings, Trainer

COMPONENT = re.compile(r"rewards/(?P<name>.+?)(?:/(?P<what>mean|std))?")
"""Keys of single reward functions."""


def _define(columns: Columns, settings: Settings, window: int) -> Definitions:
    """Metrics of keys whose meaning depends on version or settings: reward_std, frac_reward_zero_std, kl, reward."""
    defined: dict[str, str] = {}
    notes: list[str] = []
    old = "completion_length" in columns and "completions/mean_length" not in columns  # Unsloth logs both
    batchwise = settings.get("scale_rewards") == "batch" or (
        settings.get("multi_objective_aggregation") == "normalize_then_sum"
    )
    spread, dead, kl = (columns.get(key) for key in ("reward_std", "frac_reward_zero_std", "kl"))
    if dead is not None:
        if batchwise:
            defined["frac_reward_zero_std"] = "dead_batches"
        elif not (window == 1 and bool(((dead > 0) & (dead < 1)).any())):
            notes.append(
                "frac_reward_zero_std is read as the share of dead groups; with scale_rewards=batch it would be "
                "that of whole batches (give scale_rewards to be sure)"
            )
    if spread is not None:
        defined["reward_std"], why = _spread(columns, settings, old, batchwise)
        notes.append(f"reward_std: {why}")
    if kl is not None:
        if settings.get("trainer") == "rloo" or bool((kl < -1e-6).any()):
            defined["kl"] = "kl_k1"
            if _rloo_reward_has_penalty(columns, settings, notes):
                defined["reward"] = "reward_after_kl"
            notes.append("kl is the k1 estimate: it has negative values, which k3 cannot have, or the trainer is RLOO")
        elif old and "clip_ratio" not in columns:
            defined["kl"] = "kl_sequence"
            notes.append("kl is averaged over completions, as TRL did up to 0.15")
    return defined, notes


def _no_term(table: Columns, settings: Settings) -> dict[str, Bools]:
    """Rows (N,) in which KL and entropy have no term, where TRL divides 0 by 0 and logs NaN.

    KL has none with beta = 0; both have none where no token counts: every completion is cut at the limit and left out
    of the loss (mask_truncated_completions), which is exactly 0. Means over the completions that ended, clip ratios,
    spreads of one value and rewards of functions that returned None for all may be NaN anywhere; they are not among
    the metrics of which a NaN counts (`not_finite.COUNTED`).
    """
    none = np.zeros(len(table["step"]), bool)
    if {"truncated", "loss"} <= table.keys():
        none = (table["truncated"] == 1) & (table["loss"] == 0)
    of_kl = np.ones_like(none) if settings.get("kl") == 0 else none
    rows = dict.fromkeys(VARIANTS["kl"], of_kl) | dict.fromkeys(VARIANTS["entropy"], none)
    return {name: here for name, here in rows.items() if here.any()}


def _tool_shares(columns: Columns) -> dict[str, Made]:
    """Shares of tool calls that failed, and that asked for an unknown tool, of the totals that the asynchronous trainer
    logs by tool."""
    calls, failures = (_over_tools(columns, what) for what in ("call_total", "failure_total"))
    unknown = columns.get("tools/unknown_name_total")
    made = {}
    if calls is not None:
        whole = np.where(calls > 0, calls, np.nan)
        if failures is not None:
            made["agent/call_failures"] = Made(failures / whole, "Σ tools/NAME/failure_total ÷ Σ tools/NAME/call_total")
        if unknown is not None:
            formula = "tools/unknown_name_total ÷ (Σ tools/NAME/call_total + tools/unknown_name_total)"
            made["agent/bad_calls"] = Made(unknown / np.where(calls + unknown > 0, calls + unknown, np.nan), formula)
    return made


def _over_tools(columns: Columns, what: str) -> Floats | None:
    """The sum of a total over all tools (N,); None where no tool has it."""
    own = [columns[key] for key in columns if re.fullmatch(rf"tools/[^/]+/{what}", key)]
    return np.nansum(own, axis=0) if own else None


def _rloo_reward_has_penalty(columns: Columns, settings: Settings, notes: list[str]) -> bool:
    """Whether `reward` of RLOO has the KL penalty subtracted: so up to TRL 0.29, not from 1.0."""
    version, reward = _version(settings.get("trl_version")), columns.get("reward")
    if reward is None:
        return False
    means = [key for key in columns if re.fullmatch(r"rewards/.+/mean", key)]
    total = np.sum([columns[key] for key in means], axis=0) if means else np.full(len(reward), np.nan)
    if (version is not None and version >= (1, 0)) or np.allclose(reward, total, rtol=1e-3, atol=1e-4, equal_nan=False):
        return False
    if version is not None:
        notes.append(f"reward has the KL penalty subtracted, as in RLOO of TRL {settings['trl_version']}")
        return True
    notes.append(
        "reward may have the KL penalty subtracted, as in RLOO up to TRL 0.29: it is not the sum of its parts "
        "(give trl_version)"
    )
    return False


def _spread(columns: Columns, settings: Settings, old: bool, batchwise: bool) -> tuple[str, str]:
    """The metric that reward_std is, and why."""
    version = _version(settings.get("trl_version"))
    if version is not None:
        if version >= (0, 27):
            return "reward_std_batch", f"of the whole batch, as in TRL {settings['trl_version']}"
        if batchwise:
            return "reward_std_batch", "of the whole batch, by scale_rewards=batch"
        return "reward_std", f"within groups, as in TRL {settings['trl_version']}"
    if old:
        return "reward_std", "within groups, as in TRL up to 0.16, the versions that log completion_length"
    spread, dead = columns["reward_std"], columns.get("frac_reward_zero_std")
    if dead is not None and not batchwise and bool(((dead == 1) & (spread > 1e-4)).any()):
        return "reward_std_batch", "of the whole batch, because it is not 0 where all groups are dead"
    parts = [key for key in columns if re.fullmatch(r"rewards/.+/std", key)]
    if len(parts) == 1:
        whole = columns[parts[0]]
        both = np.isfinite(whole) & np.isfinite(spread) & (whole > 1e-3)
        if both.sum() >= 3:
            ratio = spread[both] / whole[both]
            if np.ptp(ratio) <= 1e-3 * abs(ratio).max():
                return "reward_std_batch", "of the whole batch, because it equals that of the only reward function"
            return (
                "reward_std",
                "within groups, because it differs from the batch's of the only reward function",
            )
    return "reward_std_unclear", (
        "within groups up to TRL 0.26, of the whole batch from 0.27, and the log does not show which (give trl_version)"
    )


def _version(text: Any) -> tuple[int, ...] | None:
    match = re.match(r"(\d+)\.(\d+)", str(text)) if text is not None else None
    return (int(match[1]), int(match[2])) if match else None


def state_files(folder: Path) -> list[Path]:
    """The trainer states in an output folder or a checkpoint, the one that got furthest first."""
    states = [*folder.glob("trainer_state.json"), *folder.glob("checkpoint-*/trainer_state.json")]
    return sorted(states, key=lambda path: (path.parent != folder, -checkpoint_step(path.parent.name)))


def checkpoint_step(name: str) -> int:
    """N of a folder checkpoint-N; -1 for any other name."""
    match = re.fullmatch(r"checkpoint-(\d{1,15})", name)
    return int(match[1]) if match else -1


def read_folder(folder: LogFile, hints: Hints) -> RawLog:
    """An output folder or a checkpoint folder; its groups are those of completions/, if completions were logged."""
    chosen, *others = state_files(folder.path)
    log = read_state(LogFile(chosen), hints)
    if others:
        _check_one_run(chosen, others)
        log.notes.append(
            f"{chosen.relative_to(folder.path)} was read; {len(others)} of earlier checkpoints were not needed"
        )
    if completions := trl_completions.files(folder.path):
        components = {match["name"] for key in log.rows.present() if (match := COMPONENT.fullmatch(key))}
        log.groups, log.rollouts, notes = trl_completions.groups(completions, hints.settings, components)
        sizes = set(log.groups.sizes.tolist())
        if "group" not in hints.settings and len(sizes) == 1:
            log.measured = {"group": sizes.pop()}
            notes.insert(0, f"the group size {log.measured['group']} was taken from the prompts in completions/")
        log.notes += notes
    return replace(log, source=folder.path, name=folder.path.resolve().name)


def _check_one_run(chosen: Path, others: list[Path]) -> None:
    """UserError where an earlier checkpoint, the last or one that was written later, has other rewards at its steps."""
    written = chosen.stat().st_mtime
    rewards = _rewards(chosen)
    for other in [others[0], *(path for path in others[1:] if path.stat().st_mtime > written)]:
        step = differ(rewards, _rewards(other))
        if step is not None:
            raise UserError(
                f"{chosen} and {other} are of different runs: their rewards at step {step} differ; give one of the two"
            )


def _rewards(path: Path) -> dict[str, Floats]:
    """Steps and rewards of the training rows of a trainer state; empty where it cannot be read."""
    try:
        content = LogFile(path).document
    except UserError:
        content = None
    history = content.get("log_history") if isinstance(content, dict) else None
    rows = [row for row in history if isinstance(row, dict)] if isinstance(history, list) else []
    pairs = [(json_number(row.get("step")), json_number(row.get("reward"))) for row in rows]
    pairs_known = [(step, reward) for step, reward in pairs if step is not None and reward is not None and step == step]
    good = np.array(pairs_known, np.float64).reshape(-1, 2)
    return {"step": good[:, 0], "reward": good[:, 1]}


def differ(table: Columns, other: Columns) -> int | None:
    """First step at which two tables have different rewards; None if there is none, or no reward."""
    if "reward" not in table or "reward" not in other:
        return None
    _, here, there = np.intersect1d(table["step"], other["step"], return_indices=True)
    with np.errstate(invalid="ignore"):  # both may be infinite
        unequal = np.abs(table["reward"][here] - other["reward"][there]) > 1e-6 * (1 + np.abs(table["reward"][here]))
    return int(table["step"][here[unequal][0]]) if unequal.any() else None


def read_state(file: LogFile, hints: Hints) -> RawLog:
    """A trainer_state.json: log_history is a list of rows, each the mean over logging_steps steps.

    Evaluations are rows of their own with keys eval_…, at the step of a training row; the last row is about the run
    as a whole. UserError where there is no row.
    """
    path, content = file.path, file.document
    history = content.get("log_history") if isinstance(content, dict) else None
    if not isinstance(history, list):
        raise UserError(f"{path} has no log_history; give the trainer_state.json of a checkpoint")
    rows = ColumnBuilder()
    for number, row in enumerate(history, 1):
        if isinstance(row, dict):
            rows.row(number, row)
    notes = [f"{len(history) - len(rows)} rows are not objects and were left out"] if len(rows) < len(history) else []
    if not len(rows):
        raise UserError(f"{path}: log_history is empty; the run stopped before logging_steps, or logs elsewhere")
    notes += _best_by_loss(content.get("best_metric"), [row for row in history if isinstance(row, dict)])
    every = content.get("logging_steps")
    window = int(every) if isinstance(every, int | float) and 1 <= every < 2**53 else None
    if window and window > 1:
        notes.append(
            f"each row is the mean over {window} steps (logging_steps), which hides spikes and lowers variances"
        )
    done, last = content.get("global_step"), content.get("max_steps")
    ended = isinstance(done, int) and isinstance(last, int) and 0 < last <= done
    return RawLog(
        path,
        rows,
        engine="trl",
        status="finished" if ended else "unknown",
        notes=notes,
        logged={"max_steps": last, "logging_steps": every} if window else {},
        window=window,
        place="row",
        name=path.resolve().name,
    )


def _best_by_loss(best: object, rows: list[dict[str, Any]]) -> list[str]:
    """That the best checkpoint was chosen by the loss of an evaluation, where another has a higher reward."""
    scored = [row for row in rows if isinstance(row.get("eval_loss"), float) and json_number(row.get("eval_reward"))]
    chosen = next((row for row in scored if row["eval_loss"] == best), None)
    highest = max(scored, key=lambda row: float(row["eval_reward"]), default=None)
    if chosen is None or highest is None or not chosen["eval_reward"] < highest["eval_reward"]:
        return []
    return [
        f"best_metric is the eval_loss of step {chosen.get('step')}, where eval_reward is {chosen['eval_reward']:.3g}; "
        f"it is {highest['eval_reward']:.3g} at step {highest.get('step')}: the loss of GRPO does not say which "
        "checkpoint is best; choose it by eval_reward (metric_for_best_model)"
    ]


def _read_notebook(file: LogFile, hints: Hints) -> RawLog:
    """The table that transformers draws in a notebook, as TRL and Unsloth runs leave it."""
    return replace(notebook.read(file, hints), engine="trl")


def _recognises(keys: Set[str]) -> bool:
    if keys & {"frac_reward_zero_std", "completions/mean_length"}:
        return True
    if any(key.startswith(("critic/", "actor/", "progress/")) for key in keys):  # verl, Tinker
        return False
    return "completion_length" in keys or ("reward_std" in keys and any(key.startswith("rewards/") for key in keys))


def _unweighted(columns: Columns, settings: Settings) -> bool | None:
    """A reward that is the plain sum of its parts though they have weights."""
    weights = settings.get("reward_weights")
    parts = [columns[key] for key in columns if re.fullmatch(r"rewards/.+/mean", key)]
    if not isinstance(weights, list) or set(weights) <= {1} or "reward" not in columns or len(parts) < 2:
        return False
    plain = np.allclose(columns["reward"], np.sum(parts, axis=0), rtol=1e-3, atol=1e-4, equal_nan=True)
    return bool(plain)


OWN_SETTINGS = frozenset({
    "num_generations", "max_completion_length", "num_iterations", "epsilon_high", "steps_per_generation",
    "generation_batch_size", "mask_truncated_completions", "scale_rewards", "loss_type", "reward_weights",
    "max_prompt_length", "vllm_mode", "log_completions", "rloo_k",
})  # fmt: skip
"""Settings that only TRL's trainers of this family have."""

_SIZES_OF_OTHERS = frozenset({
    "group_size", "n_samples", "n_samples_per_prompt", "num_samples_per_prompt", "samples_per_prompt",
    "rollouts_per_prompt", "num_rollouts",
})  # fmt: skip
"""What other programs call the rollouts of a prompt, which TRL's files say as num_generations."""
TRL = Trainer(
    name="trl",
    title="TRL",
    recognises=_recognises,
    keys={
        "reward": ("reward",),
        "reward_std_unclear": ("reward_std",),
        "dead_fraction": ("frac_reward_zero_std",),
        "entropy": ("entropy",),
        "kl": ("kl",),
        "length": ("completions/mean_length", "completion_length"),
        "length_min": ("completions/min_length",),
        "length_max": ("completions/max_length",),
        "length_terminated": ("completions/mean_terminated_length",),
        "truncated": ("completions/clipped_ratio",),
        "loss": ("loss", "Training Loss"),
        "policy_loss": ("policy_loss",),
        "grad_norm": ("grad_norm",),
        "clip_low": ("clip_ratio/low_mean",),
        "clip_high": ("clip_ratio/high_mean",),
        "clip_fraction": ("clip_ratio/region_mean", "clip_ratio"),
        "lr": ("learning_rate",),
        "tokens_total": ("num_tokens",),
        "seconds_step": ("step_time",),
        "epoch": ("epoch",),
        "mismatch/abs": ("sampling/sampling_logp_difference/mean",),
        "mismatch/abs_max": ("sampling/sampling_logp_difference/max",),
        "importance/weight": ("sampling/importance_sampling_ratio/mean",),
        "importance/weight_min": ("sampling/importance_sampling_ratio/min",),
        "importance/weight_max": ("sampling/importance_sampling_ratio/max",),
        "staleness/mean": ("sample/staleness_mean",),
        "staleness/max": ("sample/staleness_max",),
        "agent/calls": ("tools/call_frequency",),
        "agent/call_failures": ("tools/failure_frequency",),
        "agent/stop_turns": ("tools/loop_exhausted_frac",),
        "agent/seconds_tools": ("tools/latency_s",),
    },
    component=COMPONENT,
    made=_tool_shares,
    define=_define,
    no_term=_no_term,
    conventions={"ddof": 1, "eps": 1e-4},
    version="1.16",
    configured=lambda keys: (
        bool(OWN_SETTINGS & set(keys)) and ("num_generations" in keys or not _SIZES_OF_OTHERS & set(keys))
    ),
    settings=(
        Setting("num_generations", "group", 8),
        Setting("beta", "kl", 0.0),
        Setting("adam_beta1", "momentum", 0.9),
        Setting("max_grad_norm", "clip_grad"),
        Setting("learning_rate", "lr", 1e-06),
        Setting("num_iterations", "interval", 1),
        Setting("logging_steps", "logging_steps"),
        Setting("scale_rewards", "scale_rewards", "group"),
        Setting("multi_objective_aggregation", "multi_objective_aggregation", "sum_then_normalize"),
        Setting("loss_type", "loss_type", "dapo"),
        Setting("temperature", "temperature", 1.0),
        Setting("max_completion_length", "max_tokens", 512),
        Setting("epsilon", "clip_low", 0.2),
        Setting("max_steps", "steps"),
        Setting("trl_version", "trl_version"),
        Setting("reward_weights", "reward_weights"),
        Setting("gradient_accumulation_steps", "accumulation", 1),
        Setting("top_k", "top_k"),
        Setting("top_p", "top_p", 1.0),
        Setting("min_p", "min_p"),
        Setting("max_prompt_length", "max_prompt"),
        Setting("vllm_max_model_length", "room"),
        Setting("vllm_max_model_len", "room"),
        Setting("entropy_coef", "entropy_bonus", 0.0),
        Setting("lr_scheduler_type", "schedule"),
        Setting("warmup_steps", "warmup"),
        Setting("adam_beta2", "beta2"),
        Setting("pad_token_id", "pad"),
        Setting("mask_truncated_completions", "masks_truncated", False),
        Setting("per_device_train_batch_size", default=8),
        Setting("per_device_eval_batch_size", default=8),
        Setting("sync_ref_model", default=False),
        Setting("use_bias_correction_kl", default=True),
        Setting("importance_sampling_level", default="token"),
        Setting("eval_strategy", default="no"),
        Setting("use_vllm", default=False),
        Setting("vllm_importance_sampling_correction", default=True),
        Setting("auto_find_batch_size", default=False),
        Setting("optim", "optim", "adamw_torch_fused"),
    ),
    derive=lambda configuration, settings: (
        {"optimizer": "adamw"} if str(configuration.get("optim", "")).startswith("adamw_torch") else {}
    ),
    defects=(
        Defect(
            "weights of rewards",
            "trl",
            ("reward",),
            (0, 27),
            (1, 0),
            "is the sum of its parts without reward_weights, although the advantages use them",
            "TRL #5352",
            False,
            _unweighted,
        ),
    ),
    windowed=True,
    logs=(
        LogKind(read_state, document={"log_history": object}),
        LogKind(read_folder, folder=lambda folder: bool(state_files(folder))),
        trl_completions.KIND,
        LogKind(_read_notebook, document={"cells": list, "nbformat": object}, text=notebook.printed),
        LogKind(
            trl_console.read,
            printed=re.compile(
                rb"(?:\{|^\s*)['\"](?:loss|reward|num_tokens|completion_length|grad_norm|train_runtime)['\"]\s*:"
            ),
        ),
    ),
    how_to_log={
        "groups": "log_completions=True and logging_steps=1",
        "reward": "always logged; give the training log itself",
        "evaluation": "eval_dataset and eval_strategy=steps with a reward other than the trained one",
        "dead_fraction": "frac_reward_zero_std, or log_completions=True",
        "entropy": "logged by TRL 0.18 and later",
        "kl": "beta=1e-4 or more",
        "length": "completions/mean_length, always logged",
        "truncated": "completions/clipped_ratio, always logged",
        "grad_norm": "grad_norm, logged where the optimiser step runs; not in notebooks, so give trainer_state.json",
        "lr": "learning_rate, always logged",
        "loss": "loss; give the log of the trainer itself",
        "clip_fraction": "clip_ratio/region_mean, not with every loss_type",
        "components": "one function per component in reward_funcs",
        "component_std": "rewards/NAME/std, logged by TRL 0.16 and later",
        "reward_std": "reward_std",
        "mismatch": "use_vllm=True with vllm_importance_sampling_correction=True",
        "agent/calls": "tools/call_frequency, with tools",
        "agent/call_failures": "tools/failure_frequency, with tools",
    },
)
"""Everything that is known of TRL."""

_NOT_RLOO = frozenset(
    ("scale_rewards", "multi_objective_aggregation", "loss_type", "importance_sampling_level",
     "vllm_importance_sampling_correction", "use_bias_correction_kl", "entropy_coef")
)  # fmt: skip

RLOO = replace(
    TRL,
    title="TRL (RLOO)",
    settings=tuple(
        replace(setting, default={"num_generations": 2, "beta": 0.05}.get(setting.key, setting.default))
        for setting in TRL.settings
        if setting.key not in _NOT_RLOO
    ),
)
"""The settings of RLOOConfig: no deviation divides its advantages. Its logs are read as those of TRL."""
