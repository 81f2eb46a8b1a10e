"""Logs of slime and prime-rl, made of exactly the keys that these write: rows of rollouts and rows of updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.logs import read
from grposcope.logs.trainers import TRAINERS, trainer_of

REWARD = np.linspace(0.2, 0.6, 20).round(4)


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def slime_rows(updates: int) -> list[tuple[str, int, dict[str, float]]]:
    """(kind, number, values) of what slime logs, some updates to a rollout."""
    rows: list[tuple[str, int, dict[str, float]]] = []
    for k, reward in enumerate(REWARD.tolist()):
        values = {"rollout/raw_reward": reward, "rollout/rewards": 0.0, "rollout/response_lengths": 400.0 + k,
                  "rollout/truncated": 0.1}  # fmt: skip
        rows.append(("rollout", k, values))
        for u in range(updates):
            step = updates * k + u
            rows.append(("step", step, {"train/loss": 0.01, "train/pg_loss": 0.01, "train/entropy_loss": 0.3,
                                        "train/ppo_kl": 0.0, "train/grad_norm": 0.5 + step, "train/lr-pg_0": 1e-6,
                                        "train/train_rollout_logprob_abs_diff": 0.013}))  # fmt: skip
        if k % 5 == 4:
            rows.append(("eval", k, {"eval/aime": 0.1 * k}))
    return rows


def slime_log(path: Path, form: str, updates: int) -> Path:
    rows = slime_rows(updates)
    if form == "lines":
        counter = {"rollout": "rollout/step", "step": "train/step", "eval": "eval/step"}
        return lines(path / "log.jsonl", [{counter[kind]: number, **values} for kind, number, values in rows])
    text = "".join(f"(Actor pid=12) [2026] model.py:4 - {kind} {number}: {values}\n" for kind, number, values in rows)
    (path / "out.log").write_text("starting\n" + text)
    return path / "out.log"


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("form", ["lines", "console"])
def test_slime(tmp_path: Path, form: str, updates: int) -> None:
    """No row is dropped: every update has its gradient norm and mismatch, every rollout its reward."""
    run = read(slime_log(tmp_path, form, updates))
    assert run.meta.engine == "slime"
    steps = np.arange(len(REWARD) * updates)
    np.testing.assert_array_equal(run.table["step"], steps)
    np.testing.assert_array_equal(run.table["reward"][::updates], REWARD)
    np.testing.assert_array_equal(run.table["grad_norm"], 0.5 + steps)
    np.testing.assert_array_equal(run.table["length"][::updates], 400 + np.arange(20))
    assert {"entropy_loss", "truncated", "policy_loss", "kl_old_k1", "lr"} <= run.table.keys()
    assert run.table["mismatch/abs"].tolist() == [0.013] * len(steps)
    assert run.evaluations.metrics == ("aime",)
    assert run.evaluations.step.tolist() == [updates * k for k in (4, 9, 14, 19)]


def prime_rows(version: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the trainer and of the orchestrator, in an older and a newer version."""
    key = {"old": "{}/all/mean", "new": "train/agg/all/agent/{}/mean", "between": "train/agg/all/{}/mean"}[version]
    length = "decode_len/all/mean" if version == "old" else key.format("num_output_tokens")
    trainer: list[dict[str, Any]] = []
    orchestrator: list[dict[str, Any]] = []
    for step, reward in enumerate(REWARD.tolist()):
        trainer.append({"step": step, "loss/mean": 0.01, "entropy/all/mean": 0.4, "mismatch_kl/all/mean": 1e-3,
                        "optim/grad_norm": 0.3, "optim/lr": 1e-6, "time/step": 30.0})  # fmt: skip
        orchestrator.append({"step": step, key.format("reward"): reward, key.format("is_truncated"): 0.02,
                             length: 300.0, key.format("num_total_tokens"): 500.0, "time/step": 31.0,
                             "progress/tokens": 1e4 * step})  # fmt: skip
        if step % 10 == 9:
            orchestrator.append({"step": step, "eval/aime/avg@16": 0.2})
    return trainer, orchestrator


@pytest.mark.parametrize("version", ["old", "between", "new"])
def test_prime_rl_in_one_file(tmp_path: Path, version: str) -> None:
    trainer, orchestrator = prime_rows(version)
    rows = sorted([*trainer, *orchestrator], key=lambda row: int(row["step"]))
    run = read(lines(tmp_path / "metrics.jsonl", rows))
    assert run.meta.engine == "prime-rl"
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    for name, value in (
        ("entropy", 0.4),
        ("mismatch/k3", 1e-3),
        ("grad_norm", 0.3),
        ("length", 300),
        ("truncated", 0.02),
    ):
        assert run.table[name].tolist() == [value] * 20, name
    assert run.evaluations.of("aime/avg@16").step.tolist() == [9, 19]


@pytest.mark.parametrize("form", ["off_policy_level/all/{}", "batch/off_policy_level/{}"])
def test_levels_of_prime_rl_are_staleness_and_no_copies(tmp_path: Path, form: str) -> None:
    trainer, orchestrator = prime_rows("old")
    levels = [1 + step // 2 for step in range(20)]
    more = [{form.format("mean"): 0.8 * level, form.format("max"): level} for level in levels]
    rows = [{**a, **b} for a, b in zip(orchestrator[:10] + orchestrator[11:21], more, strict=True)]
    run = read(lines(tmp_path / "metrics.jsonl", sorted([*trainer, *rows], key=lambda row: int(row["step"]))))
    assert run.table["staleness/max"].tolist() == levels
    assert run.table["staleness/mean"].tolist() == [0.8 * level for level in levels]
    assert not any("copied" in note for note in run.meta.notes)


@pytest.mark.parametrize("version", ["old", "new"])
def test_prime_rl_in_two_files(tmp_path: Path, version: str) -> None:
    """The trainer's file is a log of reinforcement learning, too; a note says where the reward is."""
    trainer, orchestrator = prime_rows(version)
    run = read(lines(tmp_path / "trainer.jsonl", trainer))
    assert run.meta.engine == "prime-rl"
    assert "reward" not in run.table
    assert run.table["grad_norm"].tolist() == [0.3] * 20
    assert any("the orchestrator of prime-rl logs it" in note for note in run.meta.notes)
    np.testing.assert_array_equal(read(lines(tmp_path / "orch.jsonl", orchestrator)).table["reward"], REWARD)


OTHERS: dict[str, tuple[str, dict[str, str]]] = {
    "skyrl": ("trainer/global_step", {
        "reward": "reward/avg_raw_reward", "entropy_loss": "policy/policy_entropy", "kl_estimate": "policy/policy_kl",
        "length": "generate/avg_num_tokens", "loss": "policy/final_loss", "grad_norm": "policy/raw_grad_norm",
        "lr": "policy/policy_lr", "eval": "eval/all/avg_score", "staleness/mean": "async/staleness_mean",
        "mismatch/abs": "policy/rollout_train_logprobs_abs_diff_mean",
    }),
    "nemo-rl": ("step", {
        "reward": "train/reward", "entropy_loss": "train/approx_entropy", "length": "train/mean_gen_tokens_per_sample",
        "loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/lr", "eval": "validation/accuracy",
        "kl_estimate": "train/kl_penalty",
        "mismatch/k3": "train/gen_kl_error", "mismatch/mult_error": "train/token_mult_prob_error",
        "importance/ratio": "train/sampling_importance_ratio",
    }),
    "areal": ("global_step", {
        "reward": "ppo_actor/task_reward/avg", "entropy_loss": "ppo_actor/update/entropy/avg",
        "truncated": "ppo_actor/no_eos_ratios/avg", "grad_norm": "ppo_actor/update/grad_norm",
        "policy_loss": "ppo_actor/update/actor_loss/avg", "lr": "ppo_actor/update/lr",
        "eval": "eval-rollout/task_reward/avg", "mismatch/log_ratio": "ppo_actor/update/behave_approx_kl/avg",
        "importance/weight": "ppo_actor/update/behave_imp_weight/avg",
    }),
}  # fmt: skip
"""Engine -> the key of its steps, and the keys that it writes for some metrics and for an evaluation."""


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("engine", OTHERS)
def test_keys_of_further_engines(tmp_path: Path, engine: str, wrapped: bool) -> None:
    """The metrics at the top of each line, or in an object of their own."""
    counter, keys = OTHERS[engine]
    rows = []
    for step, reward in enumerate(REWARD.tolist(), 1):
        values = {key: reward + k for k, (name, key) in enumerate(keys.items()) if name != "eval"}
        values |= {keys["eval"]: 0.5} if step % 5 == 0 else {}
        rows.append({counter: step, **({"metrics": values} if wrapped else values)})
    run = read(lines(tmp_path / "metrics.jsonl", rows))
    assert run.meta.engine == engine
    assert run.table["step"].tolist() == list(range(1, 21))
    for k, name in enumerate(keys):
        if name != "eval":
            np.testing.assert_allclose(run.table[name], REWARD + k, err_msg=name)
    assert run.evaluations.step.tolist() == [5, 10, 15, 20]


def test_nobody_elses_keys_are_taken_for_theirs() -> None:
    for name, trainer in TRAINERS.items():
        keys = {key for same in trainer.keys.values() for key in same}
        assert name in ("grposcope", "tinker") or trainer_of(keys).name == name
