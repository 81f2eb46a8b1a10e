"""verl: its keys, its settings, its file logger, what it prints, and its rollout_data_dir.

- File logger: lines {"step": N, "data": {key: value, …}}, NaN written as null. It has no configuration.
- Console: lines step:N - key:value - key:value …, among anything else. Lines may carry terminal escapes, Ray's prefixes
  and np.float64(…). Some loggers cut lines at 4096 characters: the last value of such a line may have lost digits, so
  it is left out unless a bracket ends it.
- rollout_data_dir: a file N.jsonl per step, a line per rollout, with input, output, score, step, gts and more. Rollouts
  belong together by uid ("sample_rollout_output") where there is one, else by their input. score is before a KL
  penalty. Texts are not held: a file is read again when its rollouts are asked for.

`critic/score` is the task reward and `critic/rewards` that after the KL penalty. `actor/ppo_kl` is how far an update
moves the policy, not the KL to the reference, which is `actor/kl_loss` or `actor/reward_kl_penalty`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.run import Groups, Rollout, RolloutFiles
from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog, log_of_groups
from grposcope.logs.formats import jsonl
from grposcope.logs.formats.console import clean, printed_number
from grposcope.logs.formats.jsonl import objects
from grposcope.logs.formats.log_file import LogFile, LogKind, first_few
from grposcope.logs.hints import Hints
from grposcope.logs.logged_rollouts import LoggedRows, number_or_nan
from grposcope.logs.trainers.trainer import Columns, Defect, Setting, Settings, Trainer, width_of_batch

_LINE = re.compile(r"(?:^|[\s)\]])step:\s?(?P<step>\d{1,15}) - (?P<rest>\S.*)")
CUTS = (4095, 4096)
"""Lengths, in bytes, at which loggers cut lines."""

BARE, CLOSED, OPEN, BROKEN = "a number", "a bracket", "a separator", "no value"
"""How a line ends: with a number whose digits may go on, with a whole value, before a value, or within one."""

_NAME = re.compile(r"(\d{1,15})\.jsonl(?:\.gz)?")


def read_file_logger(file: LogFile, hints: Hints) -> RawLog:
    """The rows of the file logger."""
    return jsonl.read(file, hints, unwrap="data")


def read_console(file: LogFile, hints: Hints) -> RawLog:
    """The rows in a printed text; lines of other kinds are counted and left out."""
    rows = ColumnBuilder()
    last_keys: Counter[str] = Counter()
    cut_lines: list[int] = []
    left_out, lost = LeftOut(), 0
    for line, text, ended in file.lines():
        cleaned = clean(text)
        match = _LINE.search(cleaned) if "step:" in cleaned else None
        if match is None:
            if text.strip():
                left_out.add(line, text)
            continue
        values, keys, end = _printed_values(match["rest"])
        values["step"] = float(match["step"])
        usual = last_keys.most_common(1)
        as_usual = bool(usual) and bool(keys) and usual[0][0] == keys[-1]
        long = len(text.encode()) in CUTS or len(cleaned.encode()) in CUTS
        if end in (BROKEN, OPEN) or not ended or (long and not as_usual):
            cut_lines.append(line)
            if end == BARE:  # its digits may go on
                values.pop(keys[-1], None)
                lost += 1
            lost += end == BROKEN
        elif keys:
            last_keys[keys[-1]] += 1
        rows.row(line, values)
    if cut_lines:
        file.notes.append(
            f"{len(cut_lines)} lines are cut off: {first_few(cut_lines, 8)}; the rest of each is missing, "
            f"and {lost} values that stood last were left out, because they may lack digits"
        )
    return RawLog(file.path, rows, "verl", notes=file.notes, left_out=left_out)


def _printed_values(rest: str) -> tuple[dict[str, Any], list[str], str]:
    """(values by key, the keys in order, how the line ends) of what follows the step."""
    values: dict[str, Any] = {}
    keys: list[str] = []
    rest = rest.rstrip()
    parts = rest.removesuffix(" -").split(" - ")
    for k, part in enumerate(parts):
        key, colon, raw = part.rpartition(":")
        value = printed_number(raw) if colon else None
        if value is not None and key:
            values[key.strip()] = value
            keys.append(key.strip())
        elif k == len(parts) - 1:
            return values, keys, BROKEN
        elif colon and key:
            values[key.strip()] = raw[:200]
    return values, keys, OPEN if rest.endswith(" -") else CLOSED if rest.endswith(")") else BARE


def rollout_files(folder: Path) -> dict[int, Path]:
    """Step -> file of a rollout_data_dir, in order; empty for any other folder."""
    numbered = {int(match[1]): path for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
    ordered = {step: numbered[step] for step in sorted(numbered)}
    return ordered if ordered and _of_rollouts(LogFile(next(iter(ordered.values())))) else {}


def read_rollouts(file: LogFile, hints: Hints) -> RawLog:
    """A rollout_data_dir, or one file of it, as a log whose metrics are made of the groups of rollouts."""
    place = file.path
    paths = rollout_files(place) if place.is_dir() else {0: place}
    steps: list[int] = []
    problems: list[str] = []
    parts: list[list[float]] = []
    components: list[dict[str, list[float]]] = []
    lengths: list[list[float]] = []
    notes: list[str] = []
    where: dict[int, Path] = {}
    without_uid, bad = 0, 0
    for name, path in paths.items():
        groups: dict[tuple[int, str], tuple[str, list[dict[str, Any]]]] = {}
        rollout_file = LogFile(path)
        for _, row in objects(rollout_file):
            score = row.get("score")
            if not isinstance(score, int | float):
                bad += 1
                continue
            at = row.get("step")
            at = at if isinstance(at, int) and not isinstance(at, bool) and abs(at) < 2**53 else name
            text = str(row.get("input", ""))
            uid = row.get("uid")
            without_uid += not isinstance(uid, str)
            key = uid.split("_")[0] if isinstance(uid, str) else text
            groups.setdefault((at, key), (text, []))[1].append(row)
            where.setdefault(at, path)
        notes += rollout_file.notes
        for (at, key), (text, rows) in groups.items():
            steps.append(at)
            problems.append(_label(text or key))
            parts.append([float(row["score"]) for row in rows])
            own = [_components(row) for row in rows]
            names = dict.fromkeys(name for one in own for name in one)
            components.append({name: [one.get(name, math.nan) for one in own] for name in names})
            lengths.append([float(len(str(row.get("output", "")))) for row in rows])
    if without_uid:
        notes.append(
            "rollouts have no uid, so they are grouped by their input; a prompt drawn twice in a step counts "
            "as one group"
        )
    if bad:
        notes.append(f"{bad} rollouts have a score that is not a number and were left out")
    sizes = {len(part) for part in parts}
    if len(sizes) > 1:
        notes.append(f"groups have {min(sizes)} to {max(sizes)} rollouts")
    found = Groups.of(steps, problems, parts, components=components, lengths=lengths)
    return log_of_groups(place, "verl", found, RolloutFiles(where, _rollouts), notes)


def _rollouts(path: Path, step: int) -> tuple[Rollout, ...]:
    """The rollouts of a step, texts only, without tokens."""
    counts: dict[str, int] = {}
    rollouts = []
    none = np.empty(0)
    for _, row in objects(LogFile(path)):
        at = row.get("step")
        if isinstance(at, int) and at != step:
            continue
        text, score = str(row.get("input", "")), row.get("score")
        count = counts[text] = counts.get(text, -1) + 1
        reward = float(score) if isinstance(score, int | float) else float("nan")
        answer = str(row.get("output", ""))
        rollouts.append(
            Rollout(_label(text), text, count, answer, reward, False, (), none, none, components=_components(row))
        )
    return tuple(rollouts)


def logged(path: Path, step: int) -> LoggedRows:
    """The rollouts of a step in a file of rollout_data_dir, grouped by uid, or by input where they have none."""
    rows = [row for _, row in objects(LogFile(path)) if not isinstance(row.get("step"), int) or row["step"] == step]
    texts = [str(row.get("input", "")) for row in rows]
    uids = [row.get("uid") for row in rows]
    return LoggedRows(
        engine="verl",
        path=path,
        step=step,
        keys=tuple(uid.split("_")[0] if isinstance(uid, str) else text for uid, text in zip(uids, texts, strict=True)),
        prompts=tuple(texts),
        completions=tuple(str(row.get("output", "")) for row in rows),
        rewards={"score": np.array([number_or_nan(row.get("score")) for row in rows], np.float64)},
    )


def _components(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that the reward function returned beside the score, by name."""
    return {
        name: float(value)
        for name, value in row.items()
        if name not in ("input", "output", "score", "step", "gts", "uid") and isinstance(value, int | float)
    }


def _label(text: str) -> str:
    """A prompt, shortened with a hash so that long prompts stay distinct without being held in memory."""
    if len(text) <= 200:
        return text
    return f"{text[:180]}… {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _of_file_logger(file: LogFile) -> bool:
    row = file.first_row if file.shape == "json lines" else None
    return row is not None and isinstance(row.get("data"), dict) and "step" in row


def _of_rollouts(file: LogFile) -> bool:
    row = file.first_row if file.shape == "json lines" else None
    return row is not None and "output" in row and "score" in row and ("input" in row or "uid" in row)


def _kl_coefficient(configuration: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """`kl`, the coefficient in use: of the KL loss, or of the KL in the reward, 0 if both are off."""
    if settings.get("kl_in_loss"):
        return {"kl": configuration.get("actor_rollout_ref/actor/kl_loss_coef")}
    if settings.get("kl_in_reward"):
        return {"kl": configuration.get("algorithm/kl_ctrl/kl_coef")}
    return {"kl": 0.0} if "kl_in_loss" in settings or "kl_in_reward" in settings else {}


def _never_high(columns: Columns, settings: Settings) -> bool | None:
    """A share of sequences above the threshold that is 0 throughout, though the share of tokens above it is not."""
    sequences = columns.get("rollout_corr/rollout_is_seq_fraction_high")
    tokens = columns.get("rollout_corr/rollout_is_ratio_fraction_high")
    if sequences is None or bool((sequences > 0).any()):
        return False
    return True if tokens is not None and bool((tokens > 0).any()) else None


VERL = Trainer(
    name="verl",
    title="verl",
    recognises=lambda keys: any(key.startswith(("critic/score", "critic/rewards", "actor/pg_")) for key in keys),
    keys={
        "reward": ("critic/score/mean",),
        "reward_after_kl": ("critic/rewards/mean",),
        "reward_max": ("critic/score/max",),
        "reward_min": ("critic/score/min",),
        "entropy": ("actor/entropy",),
        "entropy_loss": ("actor/entropy_loss",),
        "kl_loss": ("actor/kl_loss",),
        "kl_penalty": ("actor/reward_kl_penalty",),
        "kl_old_k1": ("actor/ppo_kl",),
        "length": ("response_length/mean",),
        "length_min": ("response_length/min",),
        "length_max": ("response_length/max",),
        "at_limit": ("response_length/clip_ratio",),
        "loss": ("actor/loss",),
        "policy_loss": ("actor/pg_loss",),
        "grad_norm": ("actor/grad_norm",),
        "clip_fraction": ("actor/pg_clipfrac",),
        "clip_dual": ("actor/pg_clipfrac_lower",),
        "lr": ("actor/lr",),
        "tokens_batch": ("perf/total_num_tokens",),
        "prompt_length": ("prompt_length/mean",),
        "seconds_step": ("timing_s/step", "perf/time_per_step"),
        "epoch": ("training/epoch",),
        "advantage_mean": ("critic/advantages/mean",),
        "advantage_max": ("critic/advantages/max",),
        "advantage_min": ("critic/advantages/min",),
        "mismatch/k1": ("rollout_corr/kl",),
        "mismatch/k3": ("rollout_corr/k3_kl",),
        "mismatch/chi2_token": ("rollout_corr/chi2_token",),
        "mismatch/chi2_sequence": ("rollout_corr/chi2_seq",),
        "mismatch/prob_diff": ("training/rollout_probs_diff_mean",),
        "importance/weight": ("rollout_corr/rollout_is_mean",),
        "importance/weight_min": ("rollout_corr/rollout_is_min",),
        "importance/weight_max": ("rollout_corr/rollout_is_max",),
        "importance/ess": ("rollout_corr/rollout_is_eff_sample_size",),
        "importance/masked": ("rollout_corr/rollout_rs_masked_fraction",),
        "importance/masked_sequences": ("rollout_corr/rollout_rs_seq_masked_fraction",),
        "importance/out_of_bounds": ("rollout_corr/rollout_is_oob_ratio",),
        "staleness/mean": ("training/off_policy/trajectory_staleness/mean",),
        "staleness/max": ("training/off_policy/trajectory_staleness/max",),
        "weight_version": ("fully_async/count/current_param_version",),
    },
    component=re.compile(r"gdpo/(?P<name>.+)/(?P<what>mean|std)"),
    conventions={"ddof": 1, "eps": 1e-6},
    version="0.9.1",
    configured=lambda keys: any(key.startswith(("actor_rollout_ref.", "algorithm.adv_estimator")) for key in keys),
    settings=(
        Setting("actor_rollout_ref.rollout.n", "group", 1),
        Setting("actor_rollout_ref.actor.optim.lr", "lr", 1e-06),
        Setting("algorithm.adv_estimator", "advantage", "gae"),
        Setting("algorithm.gdpo_reward_keys", "reward_names"),
        Setting("algorithm.gdpo_reward_weights", "reward_weights"),
        Setting("algorithm.norm_adv_by_std_in_grpo", "scale_rewards", True),
        Setting("algorithm.use_kl_in_reward", "kl_in_reward", False),
        Setting("actor_rollout_ref.actor.use_kl_loss", "kl_in_loss", False),
        Setting("actor_rollout_ref.actor.kl_loss_type", "divergence"),
        Setting("actor_rollout_ref.actor.loss_agg_mode", "loss_type"),
        Setting("actor_rollout_ref.rollout.temperature", "temperature", 1.0),
        Setting("data.max_response_length", "max_tokens", 512),
        Setting("data.train_batch_size", "prompts", 1024),
        Setting("actor_rollout_ref.actor.clip_ratio_low", "clip_low", 0.2),
        Setting("actor_rollout_ref.actor.clip_ratio", "clip_low", 0.2),
        Setting("actor_rollout_ref.rollout.top_k", "top_k"),
        Setting("actor_rollout_ref.rollout.top_p", "top_p"),
        Setting("actor_rollout_ref.actor.ppo_epochs", "iterations", 1),
        Setting("actor_rollout_ref.actor.optim.warmup_style", "schedule"),
        Setting("actor_rollout_ref.actor.optim.lr_warmup_steps", "warmup"),
        Setting("trainer.total_training_steps", "steps"),
        Setting("actor_rollout_ref.actor.grad_clip", "clip_grad"),
        Setting("algorithm.kl_ctrl.kl_coef", default=0.001),
        Setting("algorithm.gamma", default=1.0),
        Setting("algorithm.lam", default=1.0),
        Setting("algorithm.filter_groups.enable", default=False),
        Setting("data.max_prompt_length", default=512),
        Setting("actor_rollout_ref.actor.strategy", default="fsdp"),
        Setting("actor_rollout_ref.actor.ppo_mini_batch_size", default=256),
        Setting("actor_rollout_ref.actor.use_dynamic_bsz", default=False),
        Setting("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", default=16384),
        Setting("actor_rollout_ref.actor.clip_ratio_high", default=0.2),
        Setting("actor_rollout_ref.actor.policy_loss.loss_mode", default="vanilla"),
        Setting("actor_rollout_ref.actor.kl_loss_coef", default=0.001),
        Setting("actor_rollout_ref.actor.ulysses_sequence_parallel_size", default=1),
        Setting("actor_rollout_ref.actor.fsdp_config.model_dtype", default="fp32"),
        Setting("actor_rollout_ref.rollout.do_sample", default=True),
        Setting("actor_rollout_ref.rollout.tensor_model_parallel_size", default=2),
        Setting("trainer.nnodes", default=1),
        Setting("trainer.n_gpus_per_node", default=8),
    ),
    derive=_kl_coefficient,
    defects=(
        Defect(
            "share at the limit",
            "verl",
            ("response_length/clip_ratio",),
            (0, 9),
            None,
            "compares lengths with the longest completion of the batch, not with the limit",
            "verl #7817",
            True,
            width_of_batch("response_length/clip_ratio", "response_length/max"),
        ),
        Defect(
            "share of high sequences",
            "verl",
            ("rollout_corr/rollout_is_seq_fraction_high",),
            (0, 6),
            (0, 9),
            "is 0 by construction, because it is computed from weights that are already capped",
            "verl #6806",
            True,
            _never_high,
        ),
    ),
    logs=(
        LogKind(read_file_logger, file=_of_file_logger),
        LogKind(read_rollouts, file=_of_rollouts, folder=lambda folder: bool(rollout_files(folder))),
        LogKind(read_console, printed=re.compile(rb"step:\s?\d{1,15} - [^\s:]+:[-\d.np]")),
    ),
    how_to_log={
        "groups": "trainer.rollout_data_dir",
        "reward": "always logged; give the training log itself",
        "evaluation": "data.val_files and trainer.test_freq",
        "dead_fraction": "trainer.rollout_data_dir",
        "entropy": "actor/entropy",
        "kl": "actor.use_kl_loss=True",
        "length": "response_length/mean, always logged",
        "truncated": "response_length/clip_ratio, always logged",
        "grad_norm": "actor/grad_norm, logged where the optimiser step runs",
        "lr": "actor/lr, always logged",
        "loss": "actor/pg_loss; give the log of the trainer itself",
        "clip_fraction": "actor/pg_clipfrac",
        "components": "extra keys of the reward function",
        "component_std": "trainer.rollout_data_dir has the rollouts",
        "reward_std": "trainer.rollout_data_dir",
        "mismatch": "actor_rollout_ref.rollout.calculate_log_probs=True",
    },
)
"""Everything that is known of verl."""
