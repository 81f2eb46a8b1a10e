"""MLX-LM-LoRA: the blocks that its GRPO prints, and the keys of its callbacks in W&B or JSON lines.

    Iter 10:
    Total Rewards:  μ=1.250, σ=0.433
    Group Rewards:  μ=1.250, σ=0.310
    KL Divergence: 0.000213400000
      • Hit limit: 4.7%
      • accuracy: μ=0.500, σ=0.500, cov=100.00%

A block is the mean over the iterations since the one before it. Spreads have ddof 0. `kl` is k3 in some versions and
another estimator in others. `Val loss` is no score.
"""

from __future__ import annotations

import re

from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats.console import clean, printed_number
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.trainers.trainer import Setting, Trainer

_ITERATION = re.compile(r"Iter (?P<step>\d{1,12}):$")
_NUMBER = r"(?P<{}>[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf))(?P<{}>%?)"
_SPREAD = re.compile(
    r"(?:• )?(?P<name>[\w ]{1,80}): +μ=" + _NUMBER.format("mean", "_a") + ", σ=" + _NUMBER.format("std", "_b")
)
_CLIPPING = re.compile(r"(?P<name>low|high|total)=" + _NUMBER.format("value", "share"))
_VALUE = re.compile(r"(?:• )?(?P<name>[A-Z][A-Za-z ]{1,40}): +" + _NUMBER.format("value", "share"))

_NAMES = {
    "Loss": "train_loss", "KL Divergence": "train_kl", "Avg tokens": "train_average_generated_tokens",
    "Min tokens": "train_min_generated_tokens", "Max tokens": "train_max_generated_tokens",
    "Hit limit": "train_hit_max_tokens_ratio", "Learning Rate": "learning_rate", "Speed": "iterations_per_second",
    "Memory": "peak_memory",
}  # fmt: skip
"""What is printed, and the key of the callbacks for it."""

_SPREADS = {"Total Rewards": "train_total_rewards", "Group Rewards": "train_grouped_rewards"}


def _read(file: LogFile, hints: Hints) -> RawLog:
    """A row for each block; lines outside of one are counted and left out."""
    rows, left_out = ColumnBuilder(), LeftOut()
    begun, values = 0, dict[str, float]()
    for line, text, _ in file.lines():
        said = clean(text).strip()
        if match := _ITERATION.fullmatch(said):
            if values:
                rows.row(begun, values)
            begun, values = line, {"iteration": float(match["step"])}
        elif found := _said(said) if values else {}:
            values.update(found)
        elif said.strip("=-"):
            left_out.add(line, text)
    if values:
        rows.row(begun, values)
    return RawLog(file.path, rows, "mlx-lm-lora", notes=file.notes, left_out=left_out)


def _said(line: str) -> dict[str, float]:
    """The numbers of a line of a block, by the keys of the callbacks."""
    if match := _SPREAD.match(line):
        name = _SPREADS.get(match["name"], f"train_{match['name'].strip().replace(' ', '_')}_reward_func")
        return {f"{name}_mean": _share(match["mean"], match["_a"]), f"{name}_std": _share(match["std"], match["_b"])}
    if line.startswith("Clipping:"):
        return {f"train_clip_ratio_{match['name']}": _share(match["value"], match["share"])
                for match in _CLIPPING.finditer(line)}  # fmt: skip
    match = _VALUE.match(line)
    key = _NAMES.get(match["name"]) if match else None
    return {key: _share(match["value"], match["share"])} if match and key else {}


def _share(number: str, percent: str) -> float:
    value = printed_number(number)
    return (float("nan") if value is None else value) / (100 if percent else 1)


MLX_LM_LORA = Trainer(
    name="mlx-lm-lora",
    title="MLX-LM-LoRA",
    recognises=lambda keys: (
        "train_total_rewards_mean" in keys and bool(keys & {"train_grouped_rewards_mean", "train_total_rewards_std"})
    ),
    keys={
        "step": ("iteration",),
        "reward": ("train_total_rewards_mean",),
        "reward_std_batch": ("train_total_rewards_std",),
        "kl_estimate": ("train_kl",),
        "length": ("train_average_generated_tokens",),
        "length_min": ("train_min_generated_tokens",),
        "length_max": ("train_max_generated_tokens",),
        "at_limit": ("train_hit_max_tokens_ratio",),
        "clip_low": ("train_clip_ratio_low",),
        "clip_high": ("train_clip_ratio_high",),
        "clip_fraction": ("train_clip_ratio_total",),
        "loss": ("train_loss",),
        "lr": ("learning_rate",),
    },
    component=re.compile(r"train_(?P<name>\w+)_reward_func(?:_mean|_(?P<what>std))"),
    version="3.1.2",
    configured=lambda keys: (
        "train_mode" in keys and bool({"iters", "group_size", "batch_size", "train_type", "epochs"} & set(keys))
    ),
    settings=(
        Setting("group_size", "group", 4),
        Setting("batch_size", "prompts", 4),
        Setting("learning_rate", "lr", 1e-05),
        Setting("beta", "kl", 0.1),
        Setting("temperature", "temperature", 1.0),
        Setting("max_completion_length", "max_tokens", 512),
        Setting("epsilon", "clip_low", 1e-04),
        Setting("epsilon_high", "clip_high"),
        Setting("gradient_accumulation_steps", "accumulation", 1),
        Setting("iters", "steps"),
        Setting("grpo_loss_type", "loss_type", "grpo"),
        Setting("train_type", default="lora"),
        Setting("optimizer", "optim", "adam"),
    ),
    windowed=True,
    logs=(
        LogKind(_read, printed=re.compile(rb"\bIter \d{1,12}:[ \t]*\r?\n-{20,}\r?\nLoss: .{1,40}\r?\nTotal Rewards:")),
    ),
    how_to_log={
        "reward": "printed every steps_per_report iterations",
        "kl": "printed every steps_per_report iterations, as KL Divergence",
        "length": "printed every steps_per_report iterations",
        "lr": "printed every steps_per_report iterations",
        "loss": "printed every steps_per_report iterations",
        "truncated": "printed every steps_per_report iterations, as Hit limit",
    },
)
"""Everything that is known of MLX-LM-LoRA."""
