"""Rows as newer trainers write them: Agent Lightning, Trinity-RFT, Cosmos-RL, ART 0.5.23, SkyRL 0.4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope import diagnose, read
from grposcope.core.run import Run
from grposcope.signs import heldout

VERL = {"critic/score/mean": 0.2, "actor/grad_norm": 0.3, "actor/pg_loss": 0.01, "response_length/mean": 200.0}


def logged(path: Path, rows: list[dict[str, Any]]) -> Run:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(path)


def test_agent_lightning(tmp_path: Path) -> None:
    counts = {"training/n_rollouts": 32, "training/n_rollouts_w_trace": 32, "training/n_turns": 96,
              "training/n_sample": 64, "training/n_groups": 8, "training/n_zero_adv_groups": 2}  # fmt: skip
    rows = [{"step": i + 1, **VERL, **counts, "training/reward": 0.4, "val/reward": 0.5} for i in range(5)]
    run = logged(tmp_path / "a.jsonl", rows)
    assert run.meta.engine == "agent-lightning"
    assert run.table["reward"][0] == 0.4, "over rollouts, not over rows"
    assert {name: run.table[name][0] for name in ("dead_fraction", "agent/turns", "agent/rows")} == {
        "dead_fraction": 0.25, "agent/turns": 3.0, "agent/rows": 2.0
    }  # fmt: skip


@pytest.mark.parametrize("own", ["rollout/model_version", "experience_pipeline/task_count", "actor/final_loss"])
def test_trinity(tmp_path: Path, own: str) -> None:
    rows = [{"step": i + 1, **VERL, own: float(i), "actor/kl_loss": 0.01} for i in range(5)]
    run = logged(tmp_path / "a.jsonl", rows)
    assert run.meta.engine == "trinity"
    assert {"reward", "grad_norm", "length", "kl_loss"} <= set(run.table)


def test_the_explorer_of_trinity_alone(tmp_path: Path) -> None:
    rows = [{"step": i + 1, "rollout/model_version": i, "rollout/reward/mean": 0.1 * i} for i in range(5)]
    run = logged(tmp_path / "a.jsonl", rows)
    assert (run.meta.engine, run.table["reward"][-1]) == ("trinity", pytest.approx(0.4))


@pytest.mark.parametrize("prefix", ["train/", ""])
def test_cosmos_rl(tmp_path: Path, prefix: str) -> None:
    below = {"reward_mean": 0.4, "reward_std": 0.5, "kl_loss_avg": 0.01, "learning_rate": 1e-6, "grad_norm": 0.3}
    rows = [
        {"step": i + 1, **{prefix + key: value for key, value in below.items()}, "rollout/completion_length_mean": 90.0,
         "rollout/filter_reward_mean": 0.4}
        for i in range(5)
    ]  # fmt: skip
    run = logged(tmp_path / "a.jsonl", rows)
    assert run.meta.engine == "cosmos-rl"
    assert {"reward", "reward_std_batch", "kl_loss", "lr", "grad_norm", "length"} <= set(run.table)


def test_skyrl(tmp_path: Path) -> None:
    row = {"reward/avg_raw_reward": 0.4, "async/keep_rate": 0.8, "generate/trajectory_time_env_mean": 2.5}
    run = logged(tmp_path / "a.jsonl", [{"step": i + 1, **row} for i in range(5)])
    assert run.meta.engine == "skyrl"
    assert run.table["dead_fraction"][0] == pytest.approx(0.2)
    assert run.table["agent/seconds_tools"][0] == 2.5


def art(path: Path, ratio: float, correlation: float, exceptions: float) -> Run:
    """A run of ART whose reward rises, whose last fifth of rows have these."""
    draw = np.random.default_rng(0)
    rows = []
    for i in range(60):
        late = min(1.0, i / 40)
        rows.append({
            "training_step": i + 1, "recorded_at": "2026-11-26T00:00:00", "step": i + 1,
            "train/reward": 0.2 + 0.01 * i + 0.01 * draw.normal(),
            "train/exception_rate": exceptions * late,
            "loss/train": 0.1, "loss/grad_norm": 0.3,
            "loss/importance_ratio_mean": 1 + (ratio - 1) * late + 0.005 * draw.normal(),
            "loss/probs_corr": 1 + (correlation - 1) * late - 0.001 * draw.random(),
        })  # fmt: skip
    return logged(path, rows)


def found(run: Run) -> set[str]:
    return {finding.fault for finding in diagnose(run) if finding.present}


def test_an_importance_ratio_or_a_correlation_of_art_that_collapses_is_seen(tmp_path: Path) -> None:
    sound = art(tmp_path / "sound.jsonl", 1.0, 1.0, 0.0)
    assert sound.meta.engine == "art"
    assert not found(sound)
    for name, run in (
        ("ratio", art(tmp_path / "ratio.jsonl", 0.2, 1.0, 0.0)),
        ("correlation", art(tmp_path / "correlation.jsonl", 1.0, 0.4, 0.0)),
    ):
        assert any("sampler" in fault or "lag" in fault or "mismatch" in fault or "weights" in fault
                   for fault in found(run)), (name, found(run))  # fmt: skip
    assert art(tmp_path / "errors.jsonl", 1.0, 1.0, 0.9).table["agent/errors"][-1] == pytest.approx(0.9)


def open_instruct(version: str) -> list[dict[str, Any]]:
    """Rows of Open Instruct: `val/…` is of training, `eval/…` is not."""
    kl = {"new": {"objective/kl0_avg": 0.01, "objective/kl2_avg": 0.02, "objective/kl3_avg": 0.03},
          "old": {"objective/kl_avg": 0.01, "objective/kl2_avg": 0.03, "objective/kl3_avg": 0.02}}[version]  # fmt: skip
    reward = "scores" if version == "new" else "objective/scores"
    return [
        {"training_step": i + 1, "global_step": 512 * (i + 1), "episode": 512 * (i + 1), reward: 5 + 0.1 * i,
         "val/sequence_lengths": 300.0 + i, "val/stop_rate": 0.9, "val/ratio": 1.0, "lr": 5e-7,
         "policy/clipfrac_avg": 0.01, "optim/grad_norm": 0.3, "debug/vllm_vs_local_logprob_diff_mean": 0.01,
         "batch/filtered_prompts_pct": 0.25, **kl,
         **({"eval/scores": 4.0, "eval/sequence_lengths": 250.0} if i % 5 == 4 else {})}
        for i in range(20)
    ]  # fmt: skip


@pytest.mark.parametrize("version", ["new", "old"])
def test_open_instruct(tmp_path: Path, version: str) -> None:
    run = logged(tmp_path / "a.jsonl", open_instruct(version))
    assert run.meta.engine == "open-instruct"
    assert run.table["step"].tolist() == list(range(1, 21)), "of updates, not of rollouts"
    told = {name: run.table[name][0] for name in ("reward", "length", "kl", "kl_k1", "mismatch/abs", "dead_fraction")}
    assert told == {"reward": 5, "length": 300, "kl": 0.02, "kl_k1": 0.01, "mismatch/abs": 0.01, "dead_fraction": 0.25}
    assert run.table["truncated"][0] == pytest.approx(0.1)
    assert not [metric for metric in run.evaluations.metrics if "ratio" in metric or "stop" in metric]
    assert run.evaluations.of("reward").step.tolist() == [5, 10, 15, 20]


def test_lengths_are_no_held_out_score(tmp_path: Path) -> None:
    """Beside a log of anybody's, whose val/ may be of the rollouts trained on."""
    draw = np.random.default_rng(1)
    rows = [
        {"step": i + 1, "mean_reward": 0.3 + 0.004 * i + 0.01 * draw.normal(), "val/sequence_lengths_all": 300.0 + i}
        for i in range(80)
    ]  # fmt: skip
    assert not heldout.of_run(logged(tmp_path / "a.jsonl", rows))
