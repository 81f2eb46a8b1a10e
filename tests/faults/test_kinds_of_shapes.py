"""Kinds that the shape of a metric in time shows: what is named first, what is advised, and sound twins."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_log import read_raw
from test_kinds_of_metric_logs import NAMES, Columns, log, present
from true_sentences import untrue

from grposcope.core.finding import Finding
from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import answer, screen
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

N = 120
K = np.arange(N)
U = K / N
ALL = {**NAMES, "length_max": "completions/max_length"}
SCORED = {
    "accuracy": "eval_accuracy", "math/accuracy": "eval_math/accuracy", "language/accuracy": "eval_language/accuracy",
    "math/pass@16": "eval_math/pass@16", "math/avg@16": "eval_math/avg@16",
}  # fmt: skip

Change = Callable[[np.random.Generator, Columns], Mapping[str, Any]]


def evaluated(rng: np.random.Generator, mean: np.ndarray) -> np.ndarray:
    """A score at every fifth row."""
    return np.where(K % 5 == 4, mean + 0.01 * rng.normal(size=N), np.nan)


def forgets(rng: np.random.Generator, row: Columns) -> Columns:
    return {
        "eval_language/accuracy": evaluated(rng, 0.7 - 0.35 * U),
        "eval_math/accuracy": evaluated(rng, 0.4 + 0.3 * U),
    }


def another_task(rng: np.random.Generator, row: Columns) -> Columns:
    return {"eval_accuracy": np.abs(evaluated(rng, np.full(N, 0.045)))}


def timed_out(rng: np.random.Generator, row: Columns) -> Columns:
    slow = np.isin(K, [23, 41, 42, 77, 90, 104])
    return {
        "reward": row["reward"] * np.where(slow, 0.3, 1.0),
        "step_time": 60 * np.where(slow, 6.0, 1.0) + rng.normal(size=N),
    }


def every_second(rng: np.random.Generator, row: Columns) -> Columns:
    return {"grad_norm": row["grad_norm"] * (K % 2 == 0), "loss": row["loss"] * (K % 2 == 0)}


def restarted(rng: np.random.Generator, row: Columns) -> Columns:
    away = np.where(K >= 60, np.clip((K - 60) / 5, 0, 1) * np.exp(-(K - 60) / 25), 0.0)
    rate = 2e-6 * (0.02 + 0.98 * (0.5 + 0.5 * np.cos(np.pi * (K % 60) / 60)))
    return {"learning_rate": rate, "reward": row["reward"] - 0.3 * away}


def warms_up(rng: np.random.Generator, row: Columns) -> Columns:
    return {"learning_rate": 1e-6 * (K + 1) / N, "reward": 0.4 + 0.3 * U**2.2 + 0.03 * rng.normal(size=N)}


def lenient(rng: np.random.Generator, row: Columns) -> Columns:
    return {"reward": row["reward"] + 0.25 * (K >= 60), "eval_accuracy": evaluated(rng, 0.4 + 0.3 * U)}


def data_again(rng: np.random.Generator, row: Columns) -> Columns:
    return {"reward": row["reward"] + 0.2 * (K >= 60), "epoch": np.where(K >= 60, K - 60, K) / 50,
            "eval_accuracy": evaluated(rng, 0.4 + 0.3 * U)}  # fmt: skip


def rescaled(rng: np.random.Generator, row: Columns) -> Columns:
    late = K >= 60
    reward = np.where(late, 2 * row["reward"] - 1, row["reward"])
    return {"reward": reward, "reward_std": row["reward_std"] * (1 + late),
            "eval_accuracy": evaluated(rng, 0.4 + 0.3 * U)}  # fmt: skip


def spikes_with_the_mismatch(rng: np.random.Generator, row: Columns) -> Columns:
    odd = np.isin(K, [31, 44, 52, 63, 71, 80, 88, 97, 103, 111])
    late = np.clip((K - 85) / 20, 0, 1)
    return {"grad_norm": row["grad_norm"] * np.where(odd, 12.0, 1.0), "reward": row["reward"] - 0.3 * late,
            "sampling/sampling_logp_difference/mean": 0.01 + 0.11 * odd + 0.001 * rng.normal(size=N)}  # fmt: skip


def runs_on(rng: np.random.Generator, row: Columns) -> Columns:
    cut = 0.02 + 0.43 * np.clip((U - 0.3) / 0.5, 0, 1)
    reward = (0.45 + 0.3 * U) * (1 - cut) + 0.02 * rng.normal(size=N)
    return {"completions/clipped_ratio": cut + 0.005 * rng.normal(size=N), "reward": reward,
            "completions/mean_length": 300 * (1 - cut) + 1024 * cut + 3 * rng.normal(size=N),
            "completions/mean_terminated_length": 300 + 5 * rng.normal(size=N)}  # fmt: skip


def pinned(rng: np.random.Generator, row: Columns) -> Columns:
    return {"completions/clipped_ratio": np.zeros(N), "completions/max_length": np.full(N, 1873.0),
            "completions/mean_length": 500 + 700 * U + 10 * rng.normal(size=N),
            "reward": row["reward"] - 0.45 * np.clip(U - 0.4, 0, 1)}  # fmt: skip


def fewer(rng: np.random.Generator, row: Columns) -> Columns:
    return {"num_valid_samples": np.round(512 * np.exp(-2.5 * U))}


def tells_nothing_apart(rng: np.random.Generator, row: Columns) -> Columns:
    return {"reward": 0.8 + 0.002 * rng.normal(size=N), "reward_std": 0.012 + 0.001 * rng.normal(size=N),
            "frac_reward_zero_std": 0.54 + 0.03 * rng.normal(size=N)}  # fmt: skip


def not_one(rng: np.random.Generator, row: Columns) -> Columns:
    rate = 1e-6 * np.clip((K + 1) / 20, 0, 1)
    return {"learning_rate": rate, "clip_ratio/region_mean": 0.14 * np.exp(0.1 * rng.normal(size=N))}


def a_reward_model(rng: np.random.Generator, row: Columns) -> Columns:
    return {
        "reward": -1 + 7 * U + 0.1 * rng.normal(size=N),
        "kl": (14 * U**1.3 + 1e-4) * np.exp(0.05 * rng.normal(size=N)),
    }


def less_variety(rng: np.random.Generator, row: Columns) -> Columns:
    return {"eval_math/pass@16": evaluated(rng, 0.8 - 0.2 * U), "eval_math/avg@16": evaluated(rng, 0.3 + 0.2 * U)}


def drops_long_ones(rng: np.random.Generator, row: Columns) -> Columns:
    length = 600 + 7000 * U
    return {"completions/mean_length": length + 20 * rng.normal(size=N), "completions/max_length": length * 2.4,
            "sampling/sampling_logp_difference/mean": 0.012 * np.exp(0.05 * rng.normal(size=N)),
            "sampling/importance_sampling_ratio/mean": 0.97 * np.exp(-2.5 * U) * np.exp(0.03 * rng.normal(size=N)),
            "sampling/importance_sampling_ratio/min": np.zeros(N)}  # fmt: skip


def one_batch(rng: np.random.Generator, row: Columns) -> Columns:
    late = K >= 60
    return {"reward": np.where(late, 0.625, row["reward"]), "kl": row["kl"] + 0.6 * np.clip((U - 0.5) * 2, 0, 1),
            "eval_accuracy": evaluated(rng, 0.4 + 0.4 * np.minimum(U, 0.5) - 0.5 * np.clip(U - 0.5, 0, 1))}  # fmt: skip


def one_value_for_a_grade(rng: np.random.Generator, row: Columns) -> Columns:
    down = (K >= 50) & (K < 58)
    return {"reward": np.where(down, 0.5, row["reward"]), "reward_std": np.where(down, 0.0, row["reward_std"])}


def full_from_the_first(rng: np.random.Generator, row: Columns) -> Columns:
    return {"eval_accuracy": np.where(K % 10 == 9, 1.0, np.nan)}


KINDS: dict[Change, tuple[str, str]] = {
    forgets: ("held-out decline", "what is trained is learned, at the cost of what language/accuracy"),
    another_task: ("held-out decline", "evaluate one checkpoint on problems of the training"),
    timed_out: ("outage", "look into the logs of the grader"),
    every_second: ("empty steps", "find what such a step trains on"),
    restarted: ("learning rate off schedule", "where restarts of the schedule are meant"),
    warms_up: ("learning rate off schedule", "give the warm-up 10 to 50 steps"),
    lenient: ("wrong rewards", "put completions from before and after that step"),
    data_again: ("repeated data", "restore the position in the data"),
    spikes_with_the_mismatch: ("gradient spikes", "find the tokens of such a row"),
    runs_on: ("length", "read completions that are cut now"),
    pinned: ("unseen truncation", "raise the limit that is in force"),
    fewer: ("selective dropping", "find what leaves rollouts out"),
    tells_nothing_apart: ("no learning", "have ten answers of a prompt graded"),
    not_one: ("wrong old log-probabilities", "compute old and current log-probabilities"),
    a_reward_model: ("kl blow-up", "have late completions and early ones judged"),
    less_variety: ("held-out decline", "what is lost is variety"),
    drops_long_ones: ("correction drops most", "correct by token"),
    one_value_for_a_grade: ("outage", "look into the logs of the grader"),
    full_from_the_first: ("held-out decline", "have the evaluation grade ten answers"),
    rescaled: ("reward decline", "find out what else changed at that step"),
}
"""What a log shows -> the fault that is named first, and how the advice begins."""


@pytest.mark.parametrize("change", KINDS, ids=lambda change: change.__name__)
def test_the_kind_is_named_first_and_what_is_said_is_true(tmp_path: Path, change: Change) -> None:
    path = log(tmp_path / "log.jsonl", change)
    run = read(path)
    findings = diagnose(run)
    first = next(finding for finding in findings if finding.present)
    fault, remedy = KINDS[change]
    assert (first.fault, first.remedy[: len(remedy)]) == (fault, remedy)
    shown = screen.text(run, verdict(run, findings), findings, answer.of_run(run, findings), "", 2000)
    assert [claim for claim in untrue(shown, read_raw(path, "step", ALL, SCORED)) if path.name not in claim] == []


def two_scores_that_rise(rng: np.random.Generator, row: Columns) -> Columns:
    return {
        "eval_language/accuracy": evaluated(rng, 0.5 + 0.1 * U), "eval_math/accuracy": evaluated(rng, 0.4 + 0.3 * U)
    }  # fmt: skip


def restarted_for_nothing(rng: np.random.Generator, row: Columns) -> Columns:
    """Cycles of the learning rate at which no reward is lost."""
    return {"learning_rate": 2e-6 * (0.02 + 0.98 * (0.5 + 0.5 * np.cos(np.pi * (K % 60) / 60)))}


def learned_at_once(rng: np.random.Generator, row: Columns) -> Columns:
    """A reward that rises within ten rows as the policy changes."""
    gain = np.clip((K - 55) / 10, 0, 1)
    return {
        "reward": 0.3 + 0.35 * gain + 0.02 * rng.normal(size=N),
        "completions/mean_length": 300 - 60 * gain + rng.normal(size=N),
    }


def an_evaluation_takes_its_time(rng: np.random.Generator, row: Columns) -> Columns:
    return {"step_time": 60 + 300 * (K % 10 == 9) + rng.normal(size=N), "eval_accuracy": evaluated(rng, 0.4 + 0.3 * U)}


def clips_with_its_steps(rng: np.random.Generator, row: Columns) -> Columns:
    """Several updates of a batch: what they clip grows with the learning rate."""
    rate = np.clip((K + 1) / 20, 0, 1)
    return {"learning_rate": 1e-6 * rate, "clip_ratio/region_mean": 0.06 * rate * np.exp(0.1 * rng.normal(size=N))}


def graded_again(rng: np.random.Generator, row: Columns) -> Columns:
    """One reward for fifteen rows, somewhat below the others: what comes after it is no other grader."""
    return {"reward": np.where((K >= 50) & (K < 65), 0.45, 0.56 + 0.02 * rng.normal(size=N))}


def hard_ones_learned(rng: np.random.Generator, row: Columns) -> Columns:
    return {"eval_accuracy": np.abs(evaluated(rng, 0.04 + 0.2 * U))}


@pytest.mark.parametrize(
    "change",
    [
        two_scores_that_rise,
        hard_ones_learned,
        restarted_for_nothing,
        learned_at_once,
        an_evaluation_takes_its_time,
        clips_with_its_steps,
    ],
    ids=lambda change: change.__name__,
)
def test_nothing_is_named_of_a_sound_twin(tmp_path: Path, change: Change) -> None:
    for seed in range(2):
        assert present(log(tmp_path / "log.jsonl", change, seed)) == []


def solved_from_the_start(rng: np.random.Generator, row: Columns) -> Columns:
    return {"reward": 0.93 + 0.01 * rng.normal(size=N), "reward_std": 0.15 + 0.01 * rng.normal(size=N),
            "frac_reward_zero_std": 0.4 + 0.03 * rng.normal(size=N), "kl": row["kl"] * 0.1}  # fmt: skip


def test_what_is_solved_from_the_start_is_no_judge_that_tells_nothing_apart(tmp_path: Path) -> None:
    assert [finding.grade for finding in present(log(tmp_path / "log.jsonl", solved_from_the_start))] in ([], ["note"])


def test_a_true_score_that_falls_beside_the_training_reward_on_other_problems_is_gaming(tmp_path: Path) -> None:
    """A reward on problems held out rises with what is gamed: it is graded by the training's function."""

    def change(rng: np.random.Generator, row: Columns) -> Columns:
        return {
            "eval_language/accuracy": evaluated(rng, 0.7 - 0.35 * U),
            "eval_math/reward": evaluated(rng, 0.4 + 0.3 * U),
        }

    assert present(log(tmp_path / "log.jsonl", change))[0].fault == "reward hacking"


def of_two(tmp_path: Path, code: np.ndarray) -> list[Finding]:
    """What is found of a run of prime-rl on two environments, of which one is learned."""
    rng, lines = np.random.default_rng(3), []
    for k in range(N):
        rewards = {"math": 0.3 + 0.45 * U[k] + 0.02 * rng.normal(), "code": code[k] + 0.02 * rng.normal()}
        row = {"step": k, "optim/lr": 1e-6, "optim/grad_norm": 0.4 + 0.02 * rng.normal(), "mismatch_kl/all/mean": 1e-4}
        for name, reward in (*rewards.items(), ("all", sum(rewards.values()) / 2)):
            row |= {
                f"reward/{name}/mean": reward,
                f"is_truncated/{name}/mean": 0.01,
                f"num_output_tokens/{name}/mean": 300.0,
            }
        lines.append(json.dumps(row))
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return present(tmp_path / "metrics.jsonl")


def test_an_environment_that_is_lost_for_another_is_told(tmp_path: Path) -> None:
    """Over all of them the reward stays, which is not called a run that learns nothing."""
    (found,) = of_two(tmp_path, 0.6 - 0.45 * U)
    assert (found.fault, found.grade) == ("reward decline", "failing")
    assert found.because.startswith("the reward of code fell from 0.")
    assert "while that of math rose from 0." in found.because
    assert found.remedy.startswith("balance the environments: draw more prompts of code")
    assert of_two(tmp_path, 0.3 + 0.2 * U) == []


def of_prompts(tmp_path: Path, longest: np.ndarray) -> list[str]:
    """What is found of a run of verl most of whose prompts are as long as the longest of their row."""
    rng, path = np.random.default_rng(4), tmp_path / "metrics.jsonl"
    lines = [
        {"critic/score/mean": 0.1 + 0.01 * rng.normal(), "prompt_length/mean": 470.0, "prompt_length/max": longest[k],
         "prompt_length/min": 210.0, "prompt_length/clip_ratio": 0.6 + 0.05 * rng.normal(), "actor/pg_loss": 0.01}
        for k in range(N)
    ]  # fmt: skip
    path.write_text("".join(json.dumps({"step": k + 1, "data": line}) + "\n" for k, line in enumerate(lines)))
    return [finding.fault for finding in present(path)]


def test_prompts_that_are_cut_are_told(tmp_path: Path) -> None:
    assert of_prompts(tmp_path, np.full(N, 512.0))[0] == "room for sequences"
    assert "room for sequences" not in of_prompts(tmp_path, 500.0 + K % 13)


def test_a_kl_that_is_large_in_single_rows_does_not_go_on_against_its_penalty(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(5), tmp_path / "metrics.jsonl"
    kl = (0.001 + 0.03 * U) * np.exp(0.05 * rng.normal(size=N))
    kl[[20, 47, 71, 99, 108, 116]] = [40.0, 900.0, 70.0, 8000.0, 30000.0, 400.0]
    lines = [
        {"critic/score/mean": 0.4 + 0.3 * U[k] + 0.02 * rng.normal(), "actor/kl_loss": kl[k], "actor/kl_coef": 0.04,
         "actor/pg_loss": 0.01 * rng.normal(), "actor/lr": 1e-6}
        for k in range(N)
    ]  # fmt: skip
    path.write_text("".join(json.dumps({"step": k + 1, "data": line}) + "\n" for k, line in enumerate(lines)))
    assert [finding.fault for finding in present(path)] == ["kl blow-up"]


def test_what_comes_after_rows_of_one_reward_is_no_other_grader(tmp_path: Path) -> None:
    assert "wrong rewards" not in [finding.fault for finding in present(log(tmp_path / "log.jsonl", graded_again))]


def test_a_reward_that_stands_below_its_largest_is_named_before_what_falls_then(tmp_path: Path) -> None:
    """One batch is trained on again and again: no verifier pays for anything else."""
    assert present(log(tmp_path / "log.jsonl", one_batch))[0].fault == "constant reward"


def test_an_environment_that_is_never_paid_beside_one_that_is(tmp_path: Path) -> None:
    path, rng = tmp_path / "metrics.jsonl", np.random.default_rng(0)
    lines = []
    for k in range(N):
        paid = float(0.3 + 0.3 * U[k] + 0.02 * rng.normal())
        others = {"never": 0.0, "seldom": float(k % 7 == 0) / 64}
        lines.append({"step": k, "reward/math/mean": paid, **{f"reward/{name}/mean": v for name, v in others.items()},
                      "reward/all/mean": (paid + sum(others.values())) / 3, "entropy/all/mean": 0.5,
                      "optim/lr": 1e-6, "optim/grad_norm": 0.2, "num_total_tokens/all/mean": 300.0})  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first = present(path)[0]
    assert (first.fault, first.grade, first.brief) == ("never paid", "warning", f"never: never paid in {N} rows")
    assert first.because == f"the reward of never is exactly 0 in all {N} rows, and that of math and seldom is not"
