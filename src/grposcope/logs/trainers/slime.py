"""slime, and miles which comes from it: its keys, and what it prints.

    rollout 3: {'rollout/raw_reward': 0.5, 'rollout/response_lengths': 812.0, …}
    step 7: {'train/loss': 0.01, 'train/grad_norm': 0.3, 'train/step': 7}

Rows of rollouts have `rollout/step`, rows of updates `train/step`; of k updates to a rollout, the steps are those of
the updates. `rollout/raw_reward` is the reward, `rollout/rewards` what is left of it without the mean of its group.
`train/kl_loss` is the KL to the reference, `train/ppo_kl` that to the policy before the update (k1). `train/tis` is the
mean ratio of trainer to sampler before its cap; `train/ois`, of the policy to itself before the update, keeps its name.
"""

from __future__ import annotations

import re

from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats.console import clean, printed_pairs
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile, first_few
from grposcope.logs.hints import Hints
from grposcope.logs.trainers.trainer import Columns, Defect, Setting, Settings, Trainer, with_prefix

_LINE = re.compile(r"\b(?P<kind>rollout|multi_turn|step|perf|eval) (?P<number>\d{1,15}): \{(?P<rest>['\"].*)")
_COUNTERS = {"step": "train/step", "eval": "eval/step"}


def _read_console(file: LogFile, hints: Hints) -> RawLog:
    """The rows in a printed text; lines of other kinds are counted and left out."""
    rows = ColumnBuilder()
    cut: list[int] = []
    left_out = LeftOut()
    for line, text, _ in file.lines():
        match = _LINE.search(clean(text))
        if match is None:
            if text.strip():
                left_out.add(line, text)
            continue
        if "}" not in match["rest"]:
            cut.append(line)
        counter = _COUNTERS.get(match["kind"], "rollout/step")
        rows.row(line, {counter: float(match["number"]), **printed_pairs(match["rest"])})
    if cut:
        file.notes.append(f"{len(cut)} lines are cut off: {first_few(cut, 8)}; the rest of each is missing")
    return RawLog(file.path, rows, "slime", notes=file.notes, left_out=left_out)


def _above_one(columns: Columns, settings: Settings) -> bool:
    """An effective share of the samples that is above 1."""
    column = columns.get("train/ess_ratio", columns.get("ess_ratio"))
    return column is not None and bool((column > 1 + 1e-6).any())


SLIME = Trainer(
    name="slime",
    title="slime",
    recognises=lambda keys: (
        "rollout/raw_reward" in keys or bool(keys & set(with_prefix("train_rollout_logprob_abs_diff")))
    ),
    keys={
        "reward": ("rollout/raw_reward",),
        "entropy_loss": with_prefix("entropy_loss"),
        "kl_loss": with_prefix("kl_loss"),
        "kl_old_k1": with_prefix("ppo_kl"),
        "length": ("rollout/response_len/mean", "rollout/response_lengths"),
        "truncated": ("rollout/truncated_ratio", "rollout/truncated"),
        "loss": with_prefix("loss"),
        "policy_loss": with_prefix("pg_loss"),
        "grad_norm": with_prefix("grad_norm"),
        "clip_fraction": with_prefix("pg_clipfrac"),
        "lr": with_prefix("lr-pg_0"),
        "seconds_step": ("perf/step_time",),
        "mismatch/abs": with_prefix("train_rollout_logprob_abs_diff"),
        "mismatch/k1": with_prefix("mis_kl"),
        "mismatch/k3": with_prefix("mis_k3_kl"),
        "importance/ratio": with_prefix("tis"),
        "importance/out_of_bounds": with_prefix("tis_clipfrac"),
        "agent/turns": ("multi_turn/multi_turn_metric/round_number_mean",),
        "agent/turns_max": ("multi_turn/multi_turn_metric/round_number_max",),
    },
    defects=(
        Defect(
            "effective samples",
            "slime",
            ("train/ess_ratio",),
            (0, 0),
            None,
            "exceeds 1, so it cannot be a share of the samples",
            "miles #3230",
            True,
            _above_one,
        ),
    ),
    version="of August 2026",
    configured=lambda keys: (
        {"rollout_batch_size", "n_samples_per_prompt"} <= set(keys)
        or ("n_samples_per_prompt" in keys and "rm_type" in keys)
    ),
    settings=(
        Setting("n_samples_per_prompt", "group", 1),
        Setting("rollout_batch_size", "prompts"),
        Setting("lr", "lr", 1e-06),
        Setting("rollout_temperature", "temperature", 1.0),
        Setting("rollout_top_p", "top_p", 1.0),
        Setting("rollout_max_response_len", "max_tokens"),
        Setting("advantage_estimator", "advantage", "grpo"),
        Setting("eps_clip", "clip_low", 0.2),
        Setting("kl_loss_coef", "kl", 0.0),
        Setting("update_weights_interval", default=1),
        Setting("use_tis", default=False),
        Setting("use_rollout_logprobs", default=False),
        Setting("keep_old_actor", default=False),
        Setting("rollout_top_k", "top_k", -1),
        Setting("rollout_max_prompt_len", "max_prompt"),
        Setting("rollout_max_context_len", "room"),
        Setting("entropy_coef", "entropy_bonus", 0.0),
        Setting("use_kl_loss", default=False),
        Setting("kl_coef", default=0.0),
        Setting("kl_loss_type", "divergence", "k1"),
        Setting("train_async", default=False),
    ),
    counters=("train/step", "step", "rollout/step", "eval/step"),
    logs=(
        LogKind(_read_console, printed=re.compile(rb"\b(?:rollout|step|perf) \d{1,15}: \{'(?:rollout|train|perf)/")),
    ),
    without_reward="it has no reward: slime logs it with the rollouts, as rollout/raw_reward; give that log as well",
    how_to_log={
        "reward": "rollout/raw_reward, always logged; give the log of the rollouts too",
        "evaluation": "--eval-interval and --eval-prompt-data",
        "entropy": "train/entropy_loss, always logged",
        "kl": "--use-kl-loss",
        "length": "rollout/response_len/mean, always logged",
        "truncated": "rollout/truncated_ratio, always logged",
        "grad_norm": "train/grad_norm, always logged",
        "lr": "train/lr-pg_0, always logged",
        "loss": "train/loss, always logged",
        "clip_fraction": "train/pg_clipfrac, always logged",
        "agent/turns": "--log-multi-turn",
        "mismatch": "train/train_rollout_logprob_abs_diff, always logged; --get-mismatch-metrics for more",
    },
)
"""Everything that is known of slime."""
