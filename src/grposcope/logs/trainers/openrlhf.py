"""OpenRLHF: its keys, its settings, and what it prints.

    Global step N: {dict}
    … global_step N, eval_metrics: {dict}

The dict is a printed Python one with nan and inf in it; it is searched for pairs and never evaluated. OpenRLHF counts a
global step per training step on a batch of rollouts. It logs the total spread of rewards and that within groups, which
together split the variance. `vllm_kl` is the mean of log π_sampler − log π_trainer; `kl` follows --kl_estimator, k1 by
default, and may be negative.
"""

from __future__ import annotations

import re
from dataclasses import replace

from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats.console import clean, printed_pairs
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile, first_few
from grposcope.logs.hints import Hints
from grposcope.logs.trainers.trainer import Setting, Trainer

_TRAIN = re.compile(r"Global step (?P<step>\d{1,15}): \{(?P<rest>.*)")
_EVALUATION = re.compile(r"global_step (?P<step>\d{1,15}), eval_metrics: \{(?P<rest>.*)")


def _read_console(file: LogFile, hints: Hints) -> RawLog:
    """The rows in a printed text; lines of other kinds are counted and left out."""
    rows = ColumnBuilder()
    cut: list[int] = []
    left_out = LeftOut()
    for line, text, _ in file.lines():
        cleaned = clean(text)
        train = _TRAIN.search(cleaned)
        match = train or _EVALUATION.search(cleaned)
        if match is None:
            if text.strip():
                left_out.add(line, text)
            continue
        values = printed_pairs(match["rest"])
        if "}" not in match["rest"]:
            cut.append(line)
        if train is None:
            values = {key if key.startswith("eval") else f"eval_{key}": value for key, value in values.items()}
        rows.row(line, {**values, "step": float(match["step"])})
    if cut:
        file.notes.append(f"{len(cut)} lines are cut off: {first_few(cut, 8)}; the rest of each is missing")
    return RawLog(file.path, rows, "openrlhf", notes=file.notes, left_out=left_out)


BEFORE_0_10 = (
    Setting("n_samples_per_prompt", "group", 1),
    Setting("rollout_batch_size", "prompts", 1024),
    Setting("init_kl_coef", "kl", 0.01),
    Setting("kl_estimator", "divergence", "k1"),
    Setting("actor_learning_rate", "lr", 1e-06),
    Setting("advantage_estimator", "advantage", "gae"),
    Setting("temperature", "temperature", 1.0),
    Setting("top_p", "top_p", 1.0),
    Setting("generate_max_len", "max_tokens", 1024),
    Setting("train_batch_size", default=128),
    Setting("max_epochs", default=1),
    Setting("lora_rank", default=0),
    Setting("prompt_max_len", "max_prompt", 1024),
    Setting("entropy_loss_coef", "entropy_bonus"),
    Setting("eps_clip", "clip_low", 0.2),
)
"""Settings of versions whose flags have no dots."""

OLD_FLAGS = frozenset(("actor_learning_rate", "init_kl_coef", "ref_num_gpus_per_node", "vllm_num_engines"))
"""Flags that only these versions have."""

OPENRLHF = Trainer(
    name="openrlhf",
    title="OpenRLHF",
    recognises=lambda keys: bool(
        keys & {"group_reward_std", "rollout/reward_mean", "ppo_clip_ratio", "is_filter_ratio"}
    ),
    keys={
        "reward": ("reward", "rollout/reward_mean"),
        "reward_std": ("group_reward_std",),
        "reward_std_batch": ("rollout/reward_std",),
        "score": ("score",),
        "entropy_loss": ("entropy_loss",),
        "kl_estimate": ("kl",),
        "kl_old_k1": ("ppo_kl",),
        "length": ("response_length", "rollout/response_length_mean"),
        "truncated": ("truncated", "rollout/truncated_rate"),
        "at_limit": ("response_clip_ratio",),
        "policy_loss": ("policy_loss",),
        "grad_norm": ("actor_grad_norm",),
        "clip_fraction": ("ppo_clip_ratio",),
        "lr": ("actor_lr",),
        "mismatch/k1": ("vllm_kl",),
        "rollouts": ("rollout/num_samples",),
        "seconds_step": ("timing/step_total",),
    },
    conventions={"ddof": 1, "eps": 1e-9},
    version="0.11",
    configured=lambda keys: bool({"rollout.n_samples_per_prompt", "algo.advantage.estimator"} & set(keys)),
    settings=(
        Setting("rollout.n_samples_per_prompt", "group", 1),
        Setting("rollout.batch_size", "prompts", 1024),
        Setting("algo.kl.init_coef", "kl", 0.01),
        Setting("algo.kl.estimator", "divergence", "k1"),
        Setting("actor.adam.lr", "lr", 1e-06),
        Setting("algo.advantage.estimator", "advantage", "gae"),
        Setting("rollout.temperature", "temperature", 1.0),
        Setting("rollout.top_p", "top_p", 1.0),
        Setting("rollout.max_new_tokens", "max_tokens"),
        Setting("data.max_len", "room", 2048),
        Setting("actor.entropy_coef", "entropy_bonus"),
        Setting("actor.eps_clip", "clip_low", 0.2),
        Setting("actor.optim", "optim", "adam"),
        Setting("actor.lr_scheduler", "schedule", "cosine_with_min_lr"),
        Setting("algo.kl.use_loss", default=False),
        Setting("algo.advantage.is_correction_enable", default=False),
        Setting("train.async_enable", default=False),
        Setting("train.async_queue_size", default=1),
        Setting("train.partial_rollout_enable", default=False),
        Setting("train.batch_size", default=128),
        Setting("train.max_epochs", default=1),
        Setting("ds.lora.rank", default=0),
        *(replace(setting, default=None) for setting in BEFORE_0_10 if setting.name),
    ),
    logs=(
        LogKind(
            _read_console,
            printed=re.compile(rb"Global step \d{1,15}: \{|global_step \d{1,15}, eval_metrics: \{"),
        ),
    ),
    how_to_log={
        "reward": "always logged; give the training log itself",
        "evaluation": "--eval_dataset and --eval_steps",
        "dead_fraction": "--dynamic_filtering logs a pass rate",
        "entropy": "--entropy_loss_coef 0",
        "kl": "--init_kl_coef above 0",
        "length": "response_length, always logged",
        "truncated": "truncated, always logged",
        "grad_norm": "actor_grad_norm, logged where the optimiser step runs",
        "lr": "actor_lr, always logged",
        "loss": "policy_loss; give the log of the trainer itself",
        "clip_fraction": "ppo_clip_ratio",
        "reward_std": "group_reward_std",
        "mismatch": "vllm_kl, with --algo.advantage.is_correction_level",
    },
)
"""Everything that is known of OpenRLHF."""
