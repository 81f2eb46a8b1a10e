"""ROLL: its keys, and what its stdout tracker prints.

    [INFO] … metrics_tag: {"step": 3, "metrics": {"critic/score/mean": 0.5, …}}

`critic/score` is the reward of the environment or verifier, `critic/rewards` what is left after normalising,
clipping and a KL penalty. `critic/entropy/mean` is that of the policy before the update. `actor/policykl` is the
mean of log π_new − log π_old, and `actor/train_infer_…` compares probabilities by averages of its own: they keep
their names. A domain of problems has the same keys behind its name, `math_rule/critic/score/mean`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats.console import clean
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile, first_few, json_row
from grposcope.logs.hints import Hints
from grposcope.logs.trainers.trainer import Columns, Made, Scoped, Setting, Trainer

_TAG = re.compile(r"\bmetrics_tag: (?P<json>\{.*)")
_DOMAIN = re.compile(r"(?P<scope>[^/]+)/(?P<whole>(?:critic|tokens?|group)/.+)")
_OWN = frozenset(
    ("critic/correct/mean", "token/response_length/mean", "tokens/response_length/mean", "actor/ppo_ratio_clipfrac",
     "actor/approxkl", "actor/policykl", "rollout/score/mean")
)  # fmt: skip


def _read_console(file: LogFile, hints: Hints) -> RawLog:
    """The rows in a printed text; lines of other kinds are counted and left out."""
    rows, left_out = ColumnBuilder(), LeftOut()
    cut: list[int] = []
    for line, text, _ in file.lines():
        match = _TAG.search(clean(text))
        row = json_row(match["json"].encode()) if match is not None else None
        if row is not None and isinstance(row.get("metrics"), dict):
            rows.row(line, {"step": row.get("step"), **row["metrics"]})
        elif match is not None:
            cut.append(line)
        elif text.strip():
            left_out.add(line, text)
    if cut:
        file.notes.append(f"{len(cut)} lines of metrics are cut off and were left out: {first_few(cut, 8)}")
    return RawLog(file.path, rows, "roll", notes=file.notes, left_out=left_out)


def _made(columns: Columns) -> dict[str, Made]:
    """The share of dead groups, and that of actions which an environment does not take."""
    return {**_dead(columns), **_bad_actions(columns)}


def _bad_actions(columns: Columns) -> dict[str, Made]:
    """The share of actions of the policy that the environment does not take; none where several environments are."""
    keys = [key for key in columns if re.fullmatch(r"env/[^/]+/action_is_valid(?:/mean)?", key)]
    return {"agent/bad_calls": Made(1 - columns[keys[0]], f"1 − {keys[0]}")} if len(keys) == 1 else {}


def _dead(columns: Columns) -> dict[str, Made]:
    """The share of dead groups, where every score is 0 or 1: ROLL counts groups as mixed unless all are 0 or all 1."""
    mixed, right, score = (
        columns.get(key) for key in ("group/mixed_groups_ratio", "critic/correct/mean", "critic/score/mean")
    )
    if mixed is None or right is None or score is None or not np.allclose(right, score, atol=1e-5, equal_nan=True):
        return {}
    return {"dead_fraction": Made(1 - mixed, "1 − group/mixed_groups_ratio")}


def _scoped(keys: Collection[str]) -> Scoped:
    """The keys of each domain of problems."""
    scoped: Scoped = {}
    for key in keys:
        if (match := _DOMAIN.fullmatch(key)) and match["whole"] in keys:
            scoped.setdefault(match["scope"], {})[key] = match["whole"]
    return scoped


ROLL = Trainer(
    name="roll",
    title="ROLL",
    recognises=lambda keys: bool(keys & _OWN) and any(key.startswith(("critic/", "rollout/score")) for key in keys),
    keys={
        "reward": ("critic/score/mean", "rollout/score/mean"),
        "reward_after_kl": ("critic/rewards/mean",),
        "reward_max": ("critic/score/max", "rollout/score/max"),
        "reward_min": ("critic/score/min", "rollout/score/min"),
        "entropy": ("critic/entropy/mean",),
        "kl_loss": ("actor/kl_loss",),
        "length": ("token/response_length/mean", "tokens/response_length/mean", "rollout/response_length/mean"),
        "length_min": ("token/response_length/min", "tokens/response_length/min"),
        "length_max": ("token/response_length/max", "tokens/response_length/max"),
        "prompt_length": ("token/prompt_length/mean", "tokens/prompt_length/mean", "rollout/prompt_length/mean"),
        "loss": ("actor/total_loss",),
        "policy_loss": ("actor/pg_loss",),
        "grad_norm": ("actor/grad_norm",),
        "clip_fraction": ("actor/ppo_ratio_clipfrac",),
        "clip_low": ("actor/ppo_ratio_low_clipfrac",),
        "clip_high": ("actor/ppo_ratio_high_clipfrac",),
        "lr": ("actor/lr",),
        "advantage_mean": ("critic/advantages/mean",),
        "advantage_max": ("critic/advantages/max",),
        "advantage_min": ("critic/advantages/min",),
        "seconds_step": ("time/step_total",),
    },
    patterns={"agent/turns": (re.compile(r"env/[^/]+/num_actions(?:/mean)?"),)},
    made=_made,
    scoped=_scoped,
    version="of August 2026",
    configured=lambda keys: (
        "rollout_batch_size" in keys and any(key.startswith(("actor_train.", "actor_infer.")) for key in keys)
    ),
    settings=(
        Setting("num_return_sequences_in_group", "group"),
        Setting("train_env_manager.group_size", "group"),
        Setting("rollout_batch_size", "prompts", 128),
        Setting("actor_train.training_args.learning_rate", "lr"),
        Setting("actor_infer.generating_args.temperature", "temperature"),
        Setting("actor_infer.generating_args.top_p", "top_p"),
        Setting("response_length", "max_tokens"),
        Setting("actor_infer.generating_args.top_k", "top_k"),
        Setting("prompt_length", "max_prompt"),
        Setting("entropy_loss_coef", "entropy_bonus", 0),
        Setting("max_steps", "steps"),
        Setting("actor_train.training_args.warmup_steps", "warmup"),
        Setting("adv_estimator", "advantage", "gae"),
        Setting("kl_loss_coef", "kl", 0.0),
        Setting("use_kl_loss", default=False),
        Setting("use_pg_clip_range", default=False),
        Setting("pg_clip", default=0.2),
        Setting("ppo_epochs", default=1),
    ),
    logs=(LogKind(_read_console, printed=re.compile(rb"\bmetrics_tag: \{\"step\": ")),),
    how_to_log={
        "reward": "critic/score/mean, always logged",
        "evaluation": "eval_steps and validation",
        "dead_fraction": "group/mixed_groups_ratio, for scores of 0 and 1",
        "entropy": "critic/entropy/mean, always logged",
        "kl": "use_kl_loss",
        "length": "token/response_length/mean, always logged",
        "grad_norm": "actor/grad_norm, logged where the optimiser step runs",
        "lr": "actor/lr, always logged",
        "loss": "actor/total_loss, always logged",
        "agent/turns": "env/NAME/num_actions, by the agentic pipeline",
        "clip_fraction": "actor/ppo_ratio_clipfrac, with pg_variant ppo",
    },
)
"""Everything that is known of ROLL."""
