"""Write a simulated run as the files of a trainer, with the shapes, names and quirks found on users' disks.

trl: checkpoint-N/trainer_state.json of TRL 1.16, evaluations as rows that share a step. trl groups: the same without
frac_reward_zero_std and with completions/*.parquet, so that dead groups must be counted. verl: the JSONL
file logger of verl 0.9. verl console: its printed lines, behind Ray's prefixes. openrlhf: printed by OpenRLHF 0.11.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from labelled_curves import GROUP, Made, rollouts

PROMPTS, KEPT = 32, 4
"""Prompts per step where groups are written, and from one kept file of completions to the next, in steps."""

Row = dict[str, float]


def rows(made: Made) -> Iterator[tuple[int, Row, float | None]]:
    """Yield each step, its metrics under the names of `core.metrics`, and its held-out score if there is one."""
    scores = dict(zip(made.at.tolist(), made.scores.tolist(), strict=True))
    for i, step in enumerate(made.table["step"].astype(int).tolist()):
        yield step, {name: float(column[i]) for name, column in made.table.items()}, scores.get(step)


def trl(folder: Path, made: Made, seed: int) -> Path:
    """Write the output folder of a GRPOTrainer with logging_steps=1."""
    return _state(folder, made, with_dead=True)


def trl_groups(folder: Path, made: Made, seed: int) -> Path:
    """Write the same with log_completions=True: rewards are those of the groups, no share of dead groups is logged."""
    drawn = rollouts(made, PROMPTS, seed)
    made.table["reward"] = drawn.mean((1, 2))
    made.table["reward_std"] = drawn.reshape(len(drawn), -1).std(1, ddof=1)
    (folder / "completions").mkdir()
    names = [f"What is {k} + {k}?" for k in range(PROMPTS) for _ in range(GROUP)]
    for step in range(KEPT, len(drawn) + 1, KEPT):
        rewards = drawn[step - 1]
        spread = rewards.std(1, ddof=1, keepdims=True)
        advantage = (rewards - rewards.mean(1, keepdims=True)) / (spread + 1e-4)
        content = {
            "step": [step] * len(names), "prompt": names, "completion": ["It is 7."] * len(names),
            "right": rewards.ravel(), "advantage": advantage.ravel(),
        }  # fmt: skip
        pyarrow.parquet.write_table(pa.table(content), folder / "completions" / f"completions_{step:05d}.parquet")
    return _state(folder, made, with_dead=False)


def _state(folder: Path, made: Made, with_dead: bool) -> Path:
    history: list[dict[str, Any]] = []
    tokens, last = 0.0, 0
    for step, row, score in rows(made):
        tokens, last = tokens + 128 * row["length"], step
        parts = {
            f"rewards/{name.partition('/')[2]}/{'mean' if name.startswith('component/') else 'std'}": value
            for name, value in row.items()
            if "/" in name
        } or {"rewards/right/mean": row["reward"], "rewards/right/std": row["reward_std"]}
        clip = row["clip_low"] + row["clip_high"]
        logged = {
            "loss": row["loss"], "grad_norm": row["grad_norm"], "learning_rate": row["lr"], "num_tokens": tokens,
            "completions/mean_length": row["length"], "completions/min_length": math.ceil(0.4 * row["length"]),
            "completions/max_length": math.ceil(1.8 * row["length"]), "completions/clipped_ratio": row["truncated"],
            "completions/mean_terminated_length": 0.97 * row["length"], **parts, "reward": row["reward"],
            "reward_std": row["reward_std"], "frac_reward_zero_std": row["dead_fraction"], "step_time": 9.5,
            "kl": row["kl"], "entropy": row["entropy"], "clip_ratio/low_mean": row["clip_low"],
            "clip_ratio/low_min": 0.0, "clip_ratio/high_mean": row["clip_high"], "clip_ratio/high_max": 0.2,
            "clip_ratio/region_mean": clip, "epoch": step / 100, "step": step,
        }  # fmt: skip
        if not with_dead:
            del logged["frac_reward_zero_std"]
        history.append(logged)
        if score is not None:
            held = {"eval_loss": 0.0, "eval_reward": score, "eval_reward_std": 0.4, "eval_runtime": 12.3}
            history.append({**held, "epoch": step / 100, "step": step})
    place = folder / f"checkpoint-{last}"
    place.mkdir()
    content = {"epoch": last / 100, "global_step": last, "is_world_process_zero": True, "log_history": history}
    (place / "trainer_state.json").write_text(json.dumps({**content, "logging_steps": 1, "max_steps": last}))
    return folder


def _verl(made: Made, seed: int) -> Iterator[tuple[int, Row]]:
    draws = np.abs(np.random.default_rng([seed, 8]).normal(size=len(made.table["step"])))
    for step, row, score in rows(made):
        top = (1.0 if made.binary else 2.0) if row["reward"] > 0 else 0.0
        logged = {
            "critic/score/mean": row["reward"], "critic/score/max": top,
            "critic/score/min": float(made.binary and row["reward"] >= 1), "critic/rewards/mean": row["reward"],
            "critic/rewards/max": top, "critic/rewards/min": 0.0, "critic/advantages/mean": 0.0,
            "critic/advantages/max": 2.47 * top, "critic/advantages/min": -2.47 * top,
            "actor/entropy": row["entropy"], "actor/pg_loss": row["loss"], "actor/kl_loss": row["kl"],
            "actor/kl_coef": 0.001, "actor/pg_clipfrac": row["clip_low"] + row["clip_high"],
            "actor/ppo_kl": 1e-4 * float(draws[step - 1]), "actor/pg_clipfrac_lower": 0.0,
            "actor/grad_norm": row["grad_norm"], "actor/lr": row["lr"], "response_length/mean": row["length"],
            "response_length/max": float(math.ceil(1.8 * row["length"])), "response_length/min": 5.0,
            "response_length/clip_ratio": row["truncated"], "prompt_length/mean": 101.5, "timing_s/step": 31.0,
            "perf/throughput": 1800.0, "training/global_step": float(step), "training/epoch": 0.0,
        }  # fmt: skip
        if score is not None:
            logged["val-core/openai/gsm8k/reward/mean@1"] = score
        yield step, logged


def verl(folder: Path, made: Made, seed: int) -> Path:
    """Write the lines of verl's file logger."""
    path = folder / "experiment.jsonl"
    lines = (json.dumps({"step": step, "data": row}, separators=(",", ":")) for step, row in _verl(made, seed))
    path.write_text("\n".join(lines) + "\n")
    return path


def verl_console(folder: Path, made: Made, seed: int) -> Path:
    """Write the lines that verl prints, with Ray's coloured prefixes, numpy's floats and other output in between."""
    path = folder / "train.log"
    lines = ["Training from scratch"]
    for step, row in _verl(made, seed):
        values = (
            f"{key}:np.float64({value!r})" if "score" in key else f"{key}:{value!r}" for key, value in row.items()
        )
        lines.append(f"\x1b[36m(TaskRunner pid=4711)\x1b[0m step:{step} - " + " - ".join(values))
        lines.append("\x1b[36m(WorkerDict pid=4712)\x1b[0m /usr/lib/python3/site-packages/x.py:3: UserWarning: y")
    path.write_text("\n".join(lines) + "\n")
    return path


def openrlhf(folder: Path, made: Made, seed: int) -> Path:
    """Write the lines that OpenRLHF prints: Python dicts behind Ray's prefixes."""
    path = folder / "console.log"
    lines, stamp = [], "(PPOTrainer pid=71) INFO 2026-11-01 10:00:00,000 ppo_trainer.py"
    for step, row, score in rows(made):
        live = max(1 - row["dead_fraction"], 0.0)
        logged = {
            "policy_loss": row["loss"], "entropy_loss": row["entropy"], "actor_lr": row["lr"],
            "actor_grad_norm": row["grad_norm"], "ppo_clip_ratio": row["clip_low"] + row["clip_high"],
            "ppo_kl": 1e-4, "kl": row["kl"], "logprobs_diff": row["kl"], "reward": row["reward"],
            "score": row["reward"], "return": row["reward"], "response_length": row["length"],
            "total_length": row["length"] + 100, "truncated": row["truncated"],
            "response_clip_ratio": row["truncated"], "group_reward_std": 0.45 * live,
            "rollout/reward_mean": row["reward"], "rollout/reward_std": row["reward_std"],
            "rollout/num_samples": 128, "timing/step_total": 31.0,
            **{name.partition("/")[2]: value for name, value in row.items() if name.startswith("component/")},
        }  # fmt: skip
        lines.append(f"{stamp}:550] ✨ Global step {step}: {logged!r}")
        if score is not None:
            held = {"eval_gsm8k_pass1": score, "eval_num_samples": 100}
            tail = f"✨ Evaluation completed in 0.1s, global_step {step}, eval_metrics: {held!r}"
            lines.append(f"{stamp}:598] {tail}")
    path.write_text("\n".join(lines) + "\n")
    return path


FORMS: dict[str, Callable[[Path, Made, int], Path]] = {
    "trl": trl,
    "trl groups": trl_groups,
    "verl": verl,
    "verl console": verl_console,
    "openrlhf": openrlhf,
}
"""Name -> writer of a run into an empty folder; returns the path to read."""

GROUPED = ("healthy", "healthy-plateau", "flat null", "starved", "saturated")
"""Scenarios that are also written with groups, because their failure shows in the groups."""


def flag_settings(made: Made) -> dict[str, Any]:
    """Settings that a user would give by flag, since the logs do not contain them."""
    return {"group": GROUP, **({"rewards": "binary"} if made.binary else {})}
