"""Each reader against a log in the exact shape of its trainer: values, restarts, damage, and what is refused."""

from __future__ import annotations

import gzip
import json
import math
import pickle
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import trainer_logs as logs

from grposcope.core import metrics
from grposcope.core.errors import UserError
from grposcope.core.run import Sparse, Texts
from grposcope.instruments.diagnosis import diagnose
from grposcope.logs import Run, read
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats import FORMATS, jsonl, log_file, parquet
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.trainers import TRAINERS, how_to_log
from grposcope.logs.trainers.trainer import Trainer


def note(run: Run, words: str) -> str:
    matching = [text for text in run.meta.notes if words in text]
    assert len(matching) == 1, run.meta.notes
    return matching[0]


def lines(path: Path, rows: list[Mapping[str, Any]] | list[str]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("written", "read_as"),
    [("NaN", math.nan), ('"NaN"', math.nan), ("null", math.nan), ("-Infinity", -math.inf), ("true", 1.0),
     ("1E+3", 1000.0), ("9" * 400, math.inf), ('"a"', None), ("[1]", None), (None, None)],
)  # fmt: skip
def test_values_of_json_lines(tmp_path: Path, written: str | None, read_as: float | None) -> None:
    """Numbers as Python writes them are read, whatever their size; text, lists and absent values are NaN."""
    field = "" if written is None else f', "x": {written}'
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"step": 1, "x": 0.5}}\n{{"step": 2{field}}}\n')
    _, columns, _ = jsonl.read(LogFile(path), Hints()).rows.finish()
    np.testing.assert_array_equal(columns["x"], [0.5, math.nan if read_as is None else read_as])


# TRL


def test_trainer_state(tmp_path: Path) -> None:
    rows = [logs.trl_row(step) for step in range(1, 6)]
    rows.insert(
        3, {"eval_reward": 0.7, "eval_completions/mean_length": 40.0, "eval_runtime": 9.0, "step": 3, "epoch": 0.03}
    )
    rows.append({"train_runtime": 60.0, "train_loss": 0.03, "total_flos": 0.0, "step": 5, "epoch": 0.05})
    run = read(logs.trainer_state(tmp_path / "trainer_state.json", rows))
    assert run.meta.engine == "trl"
    assert run.meta.status == "finished"
    assert run.table["step"].tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(run.table["reward"], [0.6, 0.7, 0.8, 0.9, 1.0])
    assert set(run.evaluations.metrics) == {"reward", "length", "runtime"}
    assert run.evaluations.of("reward").value.tolist() == [0.7]
    assert run.evaluations.of("reward").step.tolist() == [3]
    assert run.summary is not None
    assert run.summary["train_runtime"] == 60.0
    assert not {"train_runtime", "train_loss", "eval_reward"} & run.table.keys()
    assert {"dead_fraction", "kl", "length", "truncated", "clip_low", "component/right", "component_std/form"} <= set(
        run.table
    )
    assert run.keys["component/right"] == "rewards/right/mean"
    assert run.segments == ()
    assert run.setting("eps") == 1e-4


@pytest.mark.parametrize("best", [1e-4, 0.9])
def test_a_best_checkpoint_by_the_loss_is_noted(tmp_path: Path, best: float) -> None:
    rows = [logs.trl_row(step) for step in range(1, 6)]
    rows[2:2] = [{"eval_reward": 0.5, "eval_loss": 1e-4, "step": 2}]
    rows.append({"eval_reward": 0.9, "eval_loss": 9e-4, "step": 5})
    run = read(logs.trainer_state(tmp_path / "s.json", rows, best_metric=best))
    told = [note for note in run.meta.notes if note.startswith("best_metric is the eval_loss of step 2, where")]
    assert len(told) == (best == 1e-4)
    assert all("it is 0.9 at step 5" in note for note in told)


def test_null_and_nan_stay_in_their_rows(tmp_path: Path) -> None:
    path = logs.trainer_state(
        tmp_path / "s.json",
        [
            logs.trl_row(1),
            logs.trl_row(2, kl=None),
            logs.trl_row(3, grad_norm=math.nan),
            logs.trl_row(4, grad_norm=math.inf),
        ],
    )
    run = read(path)
    assert run.steps == 4
    assert run.nonfinite == {"grad_norm": 2}, "kl may just not have been logged"
    assert run.table["grad_norm"][3] == math.inf


def test_rows_are_windows_of_several_steps(tmp_path: Path) -> None:
    run = read(logs.trainer_state(tmp_path / "s.json", [logs.trl_row(s) for s in (10, 20, 30)], logging_steps=10))
    assert run.window == 10
    note(run, "mean over 10 steps")


@pytest.mark.parametrize(
    ("change", "given", "name", "words"),
    [
        ({}, {}, "reward_std_unclear", "the log does not show which"),
        ({}, {"trl_version": "0.26.2"}, "reward_std", "within groups, as in TRL 0.26.2"),
        ({}, {"trl_version": "1.16.0"}, "reward_std_batch", "whole batch, as in TRL 1.16.0"),
        ({}, {"trl_version": "0.24.0", "scale_rewards": "batch"}, "reward_std_batch", "by scale_rewards=batch"),
        ({"frac_reward_zero_std": 1.0}, {}, "reward_std_batch", "not 0 where all groups are dead"),
        ({"completion_length": 30.0}, {}, "reward_std", "up to 0.16"),
    ],
)
def test_which_spread_it_is(
    tmp_path: Path, change: dict[str, float], given: dict[str, Any], name: str, words: str
) -> None:
    rows = [logs.trl_row(step, **change) for step in range(1, 6)]
    if "completion_length" in change:
        rows = [{k: v for k, v in row.items() if "completions/" not in k and "frac" not in k} for row in rows]
    run = read(logs.trainer_state(tmp_path / "s.json", rows), given)
    assert [key for key in run.table if key.startswith("reward_std")] == [name]
    assert words in note(run, "reward_std: ")


@pytest.mark.parametrize(("between", "name"), [(0.0, "reward_std"), (1.0, "reward_std_batch")])
def test_one_reward_function_proves_the_spread(tmp_path: Path, between: float, name: str) -> None:
    """With one reward function its own std is the batch's: equal to reward_std in new versions, larger in old ones."""
    draws = np.random.default_rng(0).uniform(0.2, 0.4, (6, 2))
    rows = []
    for step, (batch, within) in enumerate(draws, 1):
        row = logs.trl_row(step, **{"rewards/right/std": batch, "reward_std": batch if between else 0.8 * within})
        rows.append({k: v for k, v in row.items() if "form" not in k})
    run = read(logs.trainer_state(tmp_path / "s.json", rows))
    assert [key for key in run.table if key.startswith("reward_std")] == [name]


def test_dead_fraction_is_renamed_when_it_is_of_batches(tmp_path: Path) -> None:
    path = logs.trainer_state(tmp_path / "s.json", [logs.trl_row(step) for step in (1, 2, 3)])
    assert "dead_batches" in read(path, {"scale_rewards": "batch"}).table
    assert "dead_fraction" in read(path).table, "values between 0 and 1 in single steps are of groups"


def test_a_negative_kl_is_k1(tmp_path: Path) -> None:
    run = read(logs.trainer_state(tmp_path / "s.json", [logs.trl_row(s, kl=-0.01 * s) for s in (1, 2)]))
    assert "kl_k1" in run.table
    assert "kl" not in run.table


@pytest.mark.parametrize(
    ("shift", "given", "name"),
    [
        (0.0, {}, "reward"),
        (0.3, {"trl_version": "0.24"}, "reward_after_kl"),
        (0.3, {"trl_version": "1.5"}, "reward"),
        (0.3, {}, "reward"),
    ],
)
def test_reward_of_rloo(tmp_path: Path, shift: float, given: dict[str, str], name: str) -> None:
    rows = [logs.trl_row(s, kl=-0.01 * s, reward=0.1 * s + 0.5 - shift) for s in (1, 2)]
    run = read(logs.trainer_state(tmp_path / "s.json", rows), given)
    assert [key for key in run.table if key in ("reward", "reward_after_kl")] == [name]
    assert ("reward may have" in " ".join(run.meta.notes)) == (shift > 0 and not given)


def completions(folder: Path, step: int, rewards: np.ndarray, prompts: list[Any], **extra: Any) -> None:
    """A completions file; rewards (P, G) as one function."""
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    size = rewards.shape[1]
    mean, std = rewards.mean(1, keepdims=True), rewards.std(1, ddof=1, keepdims=True)
    table = {
        "step": [step] * rewards.size,
        "prompt": [prompt for prompt in prompts for _ in range(size)],
        "completion": [f"answer {k}" for k in range(rewards.size)],
        "right": rewards.ravel().tolist(),
        "advantage": ((rewards - mean) / (std + 1e-4)).ravel().tolist(),
        **extra,
    }
    pyarrow.parquet.write_table(pa.table(table), folder / "completions" / f"completions_{step:05d}.parquet")


def test_output_folder_with_checkpoints_and_completions(tmp_path: Path) -> None:
    rows = [logs.trl_row(step) for step in range(1, 5)]
    logs.trainer_state(tmp_path / "checkpoint-2" / "trainer_state.json", rows[:2])
    logs.trainer_state(tmp_path / "checkpoint-4" / "trainer_state.json", rows)
    (tmp_path / "checkpoint-4" / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / "checkpoint-4" / "training_args.bin").write_bytes(pickle.dumps({"num_generations": 3}))
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    rewards = np.random.default_rng(1).integers(0, 2, (4, 2, 3)).astype(float)
    for step in range(1, 5):
        talks = [[{"role": "user", "content": f"question {step}{part}"}] for part in "ab"]
        completions(tmp_path, step, rewards[step - 1], talks, length=[7] * 6)
    run = read(tmp_path)
    assert run.steps == 4
    assert len(run.groups) == 8
    assert run.groups.sizes.tolist() == [3] * 8
    np.testing.assert_array_equal(run.groups.rewards, rewards.ravel(), err_msg="extra columns are no rewards")
    assert run.groups.step.tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    assert run.setting("group") == 3
    assert [r.index for r in run.rollouts[2]] == [0, 1, 2, 0, 1, 2]
    assert run.rollouts[2][4].completion == "answer 4"
    note(run, "1 of earlier checkpoints")
    assert read(tmp_path / "checkpoint-4").steps == 4


def test_completions_alone(tmp_path: Path) -> None:
    rewards = np.array([[0.0, 1.0], [1.0, 1.0]])
    completions(tmp_path, 1, rewards, ["a", "b"])
    completions(tmp_path, 2, rewards[::-1], ["c", "d"])
    (tmp_path / "completions" / "completions_00003.parquet").write_bytes(b"PAR1 cut")
    run = read(tmp_path)
    assert run.table["reward"].tolist() == [0.75, 0.75]
    assert run.table["dead_fraction"].tolist() == [0.5, 0.5]
    np.testing.assert_allclose(run.table["reward_std"], math.sqrt(0.5) / 2)
    note(run, "cannot be read")
    assert read(tmp_path / "completions" / "completions_00001.parquet").steps == 1


def test_weighted_rewards_are_noticed(tmp_path: Path) -> None:
    rewards = np.array([[0.0, 1.0, 0.2]])
    completions(tmp_path, 1, rewards, ["a"], form=[0.0, -5.0, 0.0])
    assert "they are weighted, or the advantages are others" in note(read(tmp_path), "does not order")
    note(read(tmp_path), "is taken to be the plain sum of")


def test_printed_dicts_between_progress_bars(tmp_path: Path) -> None:
    text = "Loading…\n"
    for step in (1, 2, 3):
        row = {key: value for key, value in logs.trl_row(step).items() if key != "step"}
        text += f"\r {step * 33}%|███       | {step}/3 [00:0{step}<00:02,  1.0s/it]\x1b[A\r{row}\r"
    text += "\n{'eval_reward': 0.5, 'eval_runtime': 1.0, 'epoch': 0.03}\n"
    text += "{'train_runtime': '6.0', 'train_loss': 0.1, 'epoch': 1}\n"
    (tmp_path / "output.log").write_text(text)
    run = read(tmp_path / "output.log")
    assert run.table["step"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(run.table["reward"], [0.6, 0.7, 0.8])
    assert run.evaluations.of("reward").value.tolist() == [0.5]
    assert run.summary is not None


def test_printed_dicts_without_bars_are_numbered(tmp_path: Path) -> None:
    rows = [{k: f"{v:.4g}" for k, v in logs.trl_row(s).items() if k != "step"} for s in (1, 2, 3)]
    (tmp_path / "out.txt").write_text("\n".join(map(str, rows)))
    run = read(tmp_path / "out.txt", {"logging_steps": 5})
    assert run.table["step"].tolist() == [5, 10, 15]
    assert run.table["grad_norm"].tolist() == [0.5] * 3
    note(run, "row k counts as step k × 5")


# verl


def test_verl_file_logger(tmp_path: Path) -> None:
    rows = [{"step": s, "data": logs.verl_row(s, **({"actor/kl_loss": None} if s == 3 else {}))} for s in range(1, 6)]
    rows.insert(0, {"step": 0, "data": {"val-core/math/acc/mean@8": 0.25}})
    rows[5]["data"]["val-core/math/acc/mean@8"] = 0.5
    path = lines(tmp_path / "run.jsonl", rows)
    run = read(path)
    assert run.meta.engine == "verl"
    assert run.table["step"].tolist() == [1, 2, 3, 4, 5]
    assert run.evaluations.step.tolist() == [0, 5]
    assert run.evaluations.metrics == ("val-core/math/acc/mean@8",)
    assert np.isnan(run.table["kl_loss"][2])
    np.testing.assert_allclose(run.table["reward"] - run.table["reward_after_kl"], 0.2)
    assert run.table["kl_old_k1"].tolist() == [1e-4] * 5
    assert "kl" not in run.table
    assert metrics.variant("kl", run.table) == "kl_loss", "ppo_kl is never the KL to the reference"
    assert run.setting("eps") == 1e-6


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "\x1b[36m(TaskRunner pid=4711)\x1b[0m ",
        "(main_task pid=1, ip=10.0.0.1) ",
        "(TaskRunner pid=9) [repeated 2x across cluster] ",
    ],
)
def test_verl_console(tmp_path: Path, prefix: str) -> None:
    rows = [logs.verl_line(s, logs.verl_row(s, **{"actor/grad_norm": f"np.float64({s}.5)"})) for s in (1, 2, 3)]
    text = "".join(f"{prefix}{line}\n{prefix}something else: 1\n" for line in rows)
    (tmp_path / "log").write_text(
        text + "Training Progress:   0%| | 3/9 [01:00<02:00]\r" + prefix + logs.verl_line(4, logs.verl_row(4)) + "\n"
    )
    run = read(tmp_path / "log")
    assert run.meta.engine == "verl"
    assert run.table["step"].tolist() == [1, 2, 3, 4]
    assert run.table["grad_norm"].tolist() == [1.5, 2.5, 3.5, 0.7]
    assert set(run.table) == set(read(lines(tmp_path / "f.jsonl", [{"step": 1, "data": logs.verl_row(1)}])).table)


def test_an_unfinished_last_number_is_left_out(tmp_path: Path) -> None:
    whole = [logs.verl_line(s, logs.verl_row(s)) for s in (1, 2, 3)]
    for cut in range(len(whole[2]) - 400, len(whole[2]), 7):
        (tmp_path / "log").write_text(whole[0] + "\n" + whole[1] + "\n" + whole[2][:cut])
        run = read(tmp_path / "log")
        assert run.steps == 3
        expected = read(lines(tmp_path / "whole", [{"step": 3, "data": logs.verl_row(3)}]))
        for key, column in run.table.items():
            if math.isfinite(column[2]):
                assert column[2] == expected.table[key][0], key


def test_verl_rollouts(tmp_path: Path) -> None:
    draws = np.random.default_rng(2).integers(0, 2, (2, 3, 4)).astype(float)
    for step in (1, 2):
        rows = [
            {
                "input": f"prompt {p}",
                "output": "o",
                "gts": "1",
                "score": draws[step - 1, p, g],
                "step": step,
                "uid": f"{p}_{g}_0",
            }
            for g in range(4)
            for p in range(3)
        ]
        lines(tmp_path / f"{step}.jsonl", rows)
    run = read(tmp_path)
    assert run.meta.engine == "verl"
    assert run.groups.sizes.tolist() == [4] * 6
    np.testing.assert_array_equal(run.groups.rewards.reshape(2, 3, 4), draws)
    np.testing.assert_allclose(run.table["reward"], draws.mean((1, 2)))
    assert run.setting("group") == 4
    assert len(run.rollouts[2]) == 12
    single = read(tmp_path / "2.jsonl")
    assert single.groups.step.tolist() == [2, 2, 2]


# OpenRLHF


def test_openrlhf_console(tmp_path: Path) -> None:
    start = "\x1b[36m(PPOTrainer pid=77)\x1b[0m INFO 11-21 10:00:00 ppo_trainer.py:551] ✨ "
    text = ""
    for step in (1, 2, 3):
        row = {
            "policy_loss": 0.1, "actor_lr": 1e-6, "ppo_kl": -1e-5, "kl": float("nan") if step == 2 else -0.01,
            "reward": 0.1 * step,
            "group_reward_std": 0.2, "rollout/reward_std": 0.4, "rollout/reward_mean": 0.1, "response_length": 90.0,
            "truncated": 0.1, "response_clip_ratio": 0.2, "ppo_clip_ratio": 0.0, "actor_grad_norm": float("inf"),
        }  # fmt: skip
        text += f"{start}Global step {step}: {row}\n"
    text += f"{start}Evaluation completed in 0:01:00, global_step 3, eval_metrics: {{'eval_math_pass1': 0.5}}\n"
    text += f"{start}Global step 4: {{'policy_loss': 0.1, 'reward': 0.4, 'kl"
    (tmp_path / "train.log").write_text(text)
    run = read(tmp_path)
    assert run.meta.engine == "openrlhf"
    assert run.table["step"].tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(run.table["reward"], [0.1, 0.2, 0.3, 0.4])
    assert run.table["reward_std"][0] == 0.2
    assert run.table["reward_std_batch"][0] == 0.4
    assert run.table["kl_estimate"][0] == -0.01
    assert run.table["kl_old_k1"][0] == -1e-5
    assert run.table["grad_norm"][0] == math.inf
    assert run.evaluations.of("math_pass1").value.tolist() == [0.5]
    assert "1 line is cut off: 5" in note(run, "cut off")


# loggers


def test_tensorboard_files_of_a_resumed_run(tmp_path: Path) -> None:
    summary = pytest.importorskip("torch.utils.tensorboard")
    pytest.importorskip("tensorboard")
    folder = tmp_path / "runs" / "Nov21_host"
    for part, steps in ((1, range(1, 6)), (2, range(4, 9))):
        writer = summary.SummaryWriter(str(folder), filename_suffix=f".{part}")
        writer.add_text("args", json.dumps({"num_generations": 8, "beta": 0.04, "logging_steps": 1}))
        for step in steps:
            for key, value in logs.trl_row(step, reward=100 * part + step).items():
                if key != "step":
                    writer.add_scalar(f"train/{key}", value, step)
            if step == 5:
                writer.add_scalar("eval/reward", 0.5, step)
        writer.close()
    run = read(tmp_path)
    assert run.meta.engine == "trl"
    assert run.table["step"].tolist() == list(range(1, 9))
    assert run.table["reward"].tolist() == [101, 102, 103, 204, 205, 206, 207, 208]
    assert [len(part) for part in run.segments] == [5, 5]
    assert run.setting("group") == 8
    assert run.setting("kl") == 0.04
    assert run.evaluations.of("reward").step.tolist() == [5]
    assert run.keys["reward"] == "train/reward"
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = sorted(folder.iterdir())[0]
    other = EventAccumulator(str(first), size_guidance={"scalars": 0}).Reload()
    np.testing.assert_array_equal(run.segments[0].table["kl"], [event.value for event in other.Scalars("train/kl")])
    data = first.read_bytes()
    (tmp_path / "cut").write_bytes(data[:-20])
    assert "unfinished" in note(read(tmp_path / "cut"), "unfinished")
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / "runs" / "other" / "events.out.tfevents.9").write_bytes(data)
    with pytest.raises(UserError, match="event files of 2 runs"):
        read(tmp_path)


def test_wandb_file(tmp_path: Path) -> None:
    settings = b'{"rollout": {"n": 5}, "actor": {"use_kl_loss": true, "kl_loss_coef": 0.01}}'
    item = logs.message((1, b"actor_rollout_ref"), (16, settings))
    config = logs.message((17, logs.message((1, b"id"), (8, b"brave-sea"), (4, logs.message((1, item))))))
    rows = [logs.history(s, {**logs.verl_row(s), "padding": "x" * 3000, "_step": 7 * s}) for s in range(1, 40)]
    path = logs.wandb_file(tmp_path / "run-1.wandb", [config, *rows, logs.message((18, logs.message((1, 0))))])
    run = read(path)
    assert run.meta.name == "brave-sea"
    assert run.meta.status == "finished"
    assert run.table["step"].tolist() == list(range(1, 40)), "training/global_step, not _step"
    assert run.setting("group") == 5
    assert run.setting("kl") == 0.01
    texts = run.unknown["padding"]
    assert isinstance(texts, Texts)
    assert texts.count == 39
    data = bytearray(path.read_bytes())
    data[50_000] ^= 0xFF
    path.write_bytes(data[:-100])
    damaged = read(path)
    assert 20 < damaged.steps < 39
    assert "wrong checksum" in note(damaged, "checksum")
    assert set(damaged.table["step"]) <= set(run.table["step"])


def test_wandb_export(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "chart.csv",
        [
            '"Step","sea-1 - train/reward","sea-1 - train/reward__MIN","sea-1 - train/reward__MAX"',
            "1,0.5,0.4,0.6",
            "2,0.6,,0.7",
        ],
    )
    run = read(path)
    assert run.table["step"].tolist() == [1, 2]
    assert run.table["reward"].tolist() == [0.5, 0.6]
    assert "train/reward__MIN" in set(run.keys.values()) | set(run.table)
    lines(path, ['"Step","sea-1 - reward","sky-2 - reward"', "1,0.5,0.4"])
    with pytest.raises(UserError, match="a chart of 2 runs"):
        read(path)


def test_notebook_with_two_stages(tmp_path: Path) -> None:
    sft = logs.html(["Step", "Training Loss"], [[5 * k, 1.0] for k in range(1, 50)])
    head = ["Step", "Training Loss", "reward", "reward_std", "completion_length", "kl", "rewards / right &amp; so"]
    rl = logs.html(head, [[k, "0.000100", 0.1 * k, 0.2, 100, "0.01", "No log" if k == 2 else 1] for k in (1, 2, 3)])
    run = read(logs.notebook(tmp_path / "a.ipynb", sft, rl, rl[: rl.rindex("<td>")]))
    assert run.table["step"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(run.table["reward"], [0.1, 0.2, 0.3])
    assert math.isnan(run.table["component/right & so"][1])
    assert "Step" not in run.table
    with pytest.raises(UserError, match="no output shows steps and rewards"):
        read(logs.notebook(tmp_path / "b.ipynb", sft))


# tables


def test_generic_lines_with_restart_units_and_splits(tmp_path: Path) -> None:
    rows: list[Any] = [{"step": s, "reward": 0.1 * s, "lr(1e-4)": 2.0, "tag": "warm"} for s in (0, 1, 2)]
    rows += [{"step": s, "reward": 1.0 + s, "lr(1e-4)": 1.0} for s in (1, 2, 3)]
    rows += [{"step": 3, "reward": 0.5, "split": "val"}]
    path = lines(tmp_path / "log.jsonl", rows)
    run = read(path)
    assert run.table["step"].tolist() == [0, 1, 2, 3]
    assert run.table["reward"].tolist() == [0, 2, 3, 4]
    assert run.table["lr"].tolist() == pytest.approx([2e-4, 1e-4, 1e-4, 1e-4])
    assert "lr(1e-4)" in run.table
    assert [part.table["step"].tolist() for part in run.segments] == [[0, 1, 2], [1, 2, 3]]
    assert run.segments[1].place == "line 4"
    assert run.evaluations.of("reward").value.tolist() == [0.5]
    assert run.unknown["tag"] == Texts(3, 1, ("warm",))
    assert "4 of 6 rows" in note(run, "restarted once, first in line 4")


def test_equal_rows_whatever_the_packing(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [{"step": s, "reward": rng.normal(), "m": {"a": s, "b": [1] if s == 7 else 2.5}} for s in range(1, 20)]
    path = lines(tmp_path / "a.jsonl", rows)
    one = read(path)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    (tmp_path / "list.json").write_text(json.dumps(rows, indent=1))
    (tmp_path / "crlf.jsonl").write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    for other in ("a.jsonl.gz", "list.json", "crlf.jsonl"):
        run = read(tmp_path / other)
        assert run.table.keys() == one.table.keys() == {"step", "reward", "m/a", "m/b"}
        for key, column in one.table.items():
            np.testing.assert_array_equal(run.table[key], column, err_msg=f"{other} {key}")
    flat = [f"{row['step']},{row['reward']!r}" for row in rows]
    table = read(lines(tmp_path / "t.csv", ["step,reward", *flat])).table
    np.testing.assert_array_equal(table["reward"], one.table["reward"])
    columns = {key: [row[key] for row in rows] for key in ("step", "reward")}
    (tmp_path / "c.json").write_text(json.dumps(columns))
    np.testing.assert_array_equal(read(tmp_path / "c.json").table["reward"], one.table["reward"])


def test_bulk_and_single_rows_agree(tmp_path: Path) -> None:
    """Arrow's way and the line-by-line way give the same columns; one text value sends a piece to the latter."""
    rng = np.random.default_rng(4)
    odd = [None, math.nan, math.inf, 1, True]
    rows = [
        {"step": s, "reward": rng.normal() * 10.0 ** int(rng.integers(-300, 300)), "kl": odd[s % 5]}
        for s in range(1, 300)
    ]
    bulk = read(lines(tmp_path / "a.jsonl", rows))
    single = read(lines(tmp_path / "b.jsonl", [{**rows[0], "note": "x"}, *rows[1:]]))
    for key, column in bulk.table.items():
        np.testing.assert_array_equal(column, single.table[key], err_msg=key)


def test_a_first_line_wider_than_the_head_of_the_file(tmp_path: Path) -> None:
    rows = [{"step": s, "reward": 0.1 * s, "prompts": "x" * 100_000} for s in (1, 2, 3)]
    assert read(lines(tmp_path / "log.jsonl", rows)).table["step"].tolist() == [1, 2, 3]
    assert read(lines(tmp_path / "one.jsonl", rows[:1])).steps == 1


def test_decimal_commas(tmp_path: Path) -> None:
    table = read(lines(tmp_path / "a.csv", ["step;reward;kl", "1;0,5;0,01", "2;0,75;"])).table
    assert table["reward"].tolist() == [0.5, 0.75]
    assert table["kl"][0] == 0.01
    for rows in ([{"step": 1, "reward": "0,5"}] * 2, ["step,reward", '1,"0,5"', '2,"0,6"']):
        with pytest.raises(UserError, match="reward is '0,5', a number with a decimal comma; write a decimal point"):
            read(lines(tmp_path / "b", rows))


def test_damage_is_counted_and_named(tmp_path: Path) -> None:
    rows = [json.dumps({"step": s, "reward": 0.1 * s}) for s in range(1, 10)]
    rows[3] = rows[3][:8]
    (tmp_path / "log.jsonl").write_text("\n".join(rows) + "\n" + '{"step": 10, "rew')
    run = read(tmp_path / "log.jsonl")
    assert run.steps == 8
    assert note(run, "not JSON") == "log.jsonl: 1 line is not JSON and was left out: 4"
    assert "line 10: the last line is unfinished" in note(run, "unfinished")
    (tmp_path / "log.jsonl").write_text("\n".join(rows))
    assert read(tmp_path / "log.jsonl").steps == 8, "a whole last line needs no newline"
    packed = gzip.compress("".join(f"{row}\n" for row in rows).encode())
    (tmp_path / "cut.gz").write_bytes(packed[:-8])
    cut = read(tmp_path / "cut.gz")
    assert "cut off" in note(cut, "compressed")
    assert cut.steps == 8, "all that is there is read"


def test_a_new_key_in_every_line_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grposcope.logs.columns.CELLS", 4000)
    rows = [{"step": s, "reward": 1.0, f"id {s}": s} for s in range(1, 401)]
    run = read(lines(tmp_path / "log.jsonl", rows))
    assert run.steps == 400
    assert sum(map(len, run.table.values())) <= 4000 + 400
    note(run, "occur too rarely")
    kept = run.unknown.get("id 390")
    assert isinstance(kept, Sparse)
    assert kept.value.tolist() == [390]


# what is refused

BAD: list[tuple[str, bytes, str]] = [
    ("empty", b"", "is empty"),
    ("training_args.bin", pickle.dumps({"a": 1}, protocol=2), "a pickle or an archive, and opening it"),
    ("model.pt", b"PK\x03\x04" + bytes(100), "a pickle or an archive"),
    ("junk", bytes(range(256)) * 40, "a binary file"),
    ("words.txt", b"hello\nworld\n", "not a log in a known format"),
    ("utf16.csv", "step,reward\n1,2\n".encode("utf-16"), "save it as UTF-8"),
    ("deep.json", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "too deeply nested"),
    ("deep.jsonl", b'{"step":1,"reward":1}\n' + b'{"a":' * 30_000 + b"1" + b"}" * 30_000 + b"\n", ""),
    ("cut.json", b'{"log_history": [{"step": 1,', "not valid JSON"),
    ("state.json", b'{"log_history": []}', "log_history is empty"),
    ("settings.json", b'{"lr": 1, "a": "b"}', "no key of its one row is named as a reward"),
    ("sft.jsonl", b'{"step": 1, "loss": 2.5, "learning_rate": 1e-4}\n' * 3, "log of supervised training"),
    ("two.csv", b"run,step,reward\na,1,1\nb,1,2\n", "2 runs in it: 1"),
    ("per_rollout.csv", b"step,reward\n" + b"1,0\n1,1\n2,0\n2,1\n" * 50, "micro-batches, rows of single rollouts"),
    ("gz", b"\x1f\x8b junk", "damaged from the start"),
    ("cut.wandb", b":W&B\xe1\xbe\x00\x12", "holds no history"),
    ("page.html", b"<html>\n<body>reward</body>\n</html>\n", "not a log in a known format"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words"), BAD, ids=[name for name, _, _ in BAD])
def test_bad_input_is_one_clear_line(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    if not words:
        assert read(tmp_path / name).steps == 1
        return
    with pytest.raises(UserError, match=words) as error:
        read(tmp_path / name)
    assert "\n" not in str(error.value)
    assert name in str(error.value)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(tmp_path / "sprung"), "w"))

    for protocol in range(6):
        (tmp_path / "x.bin").write_bytes(pickle.dumps(Trap(), protocol=protocol))
        with pytest.raises(UserError):
            read(tmp_path / "x.bin")
    assert not (tmp_path / "sprung").exists()


def test_values_whose_squares_overflow_are_infinite_and_said_to_be(tmp_path: Path) -> None:
    rows = [{"step": i, "reward": (-1) ** i * 1e308, "loss": 0.1} for i in range(40)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read(tmp_path / "log.jsonl")
    assert set(run.table["reward"]) == {math.inf, -math.inf}
    assert (run.table["loss"] == 0.1).all()
    assert "reward: 40 values beyond 1e+100" in note(run, "infinite")
    assert diagnose(run)[0].fault == "non-finite"


def test_folders_of_several_logs_are_refused(tmp_path: Path) -> None:
    rows = [{"step": s, "reward": 0.1} for s in (1, 2)]
    lines(tmp_path / "a.jsonl", rows)
    (tmp_path / "notes.txt").write_text("nothing of interest\n")
    assert read(tmp_path).steps == 2
    lines(tmp_path / "b.jsonl", rows)
    with pytest.raises(UserError, match=r"logs of different runs \(a\.jsonl, b\.jsonl"):
        read(tmp_path)
    for name in ("one", "two"):
        logs.trainer_state(tmp_path / "all" / name / "trainer_state.json", [logs.trl_row(1)])
    with pytest.raises(UserError, match="a folder of 2 runs"):
        read(tmp_path / "all")


@pytest.mark.parametrize("trainer", TRAINERS.values(), ids=lambda trainer: trainer.name)
def test_every_key_of_a_trainer_is_one_metric(trainer: Trainer) -> None:
    known = metrics.METRICS.keys() | metrics.LOGGED.keys()
    keys = [key for same in trainer.keys.values() for key in same]
    assert len(keys) == len(set(keys))
    assert trainer.keys.keys() <= known
    assert (trainer.usual_keys or {}).keys() <= known
    assert all(trainer.metric(key) in known for key in keys)


def test_names_of_metrics_are_used_once() -> None:
    assert not metrics.METRICS.keys() & metrics.LOGGED.keys()
    for names in metrics.VARIANTS.values():
        assert set(names) <= metrics.METRICS.keys() | metrics.LOGGED.keys()
    verl = TRAINERS["verl"]
    assert verl.metric("actor/ppo_kl") != verl.metric("actor/kl_loss")


def test_a_new_trainer_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that prints “toy 3: r=0.5”, entered in TRAINERS, is read and diagnosed."""

    def read_toy(file: LogFile, hints: Hints) -> RawLog:
        rows = ColumnBuilder()
        for line, text, _ in file.lines():
            if match := re.fullmatch(r"toy (\d+): r=(.+) h=(.+)", text):
                rows.row(line, {"step": int(match[1]), "toy_reward": float(match[2]), "h": float(match[3])})
        return RawLog(file.path, rows, "toy")

    toy = Trainer(
        "toy", "Toy", recognises=lambda keys: "toy_reward" in keys,
        keys={"reward": ("toy_reward",), "entropy": ("h",)}, conventions={"ddof": 0, "eps": 0.5},
        logs=(LogKind(read_toy, printed=re.compile(rb"toy \d+: r=")),), how_to_log={"kl": "toy --kl"},
    )  # fmt: skip
    monkeypatch.setitem(TRAINERS, "toy", toy)
    rng = np.random.default_rng(0)
    text = "".join(f"toy {s}: r={0.5 + 0.01 * rng.normal():.6f} h={2.0 ** (-s / 4):.9f}\n" for s in range(1, 101))
    (tmp_path / "out.log").write_text("hello\n" + text)
    run = read(tmp_path / "out.log")
    assert (run.meta.engine, run.steps, run.setting("eps"), run.keys["reward"]) == ("toy", 100, 0.5, "toy_reward")
    assert "entropy collapse" in {finding.fault for finding in diagnose(run) if finding.status == "present"}
    assert "Toy: toy --kl" in how_to_log("kl")
    lines(tmp_path / "metrics.jsonl", [{"step": s, "toy_reward": 0.1 * s} for s in (1, 2)])
    assert read(tmp_path / "metrics.jsonl").meta.engine == "toy", "by its keys, in a format that is known"


def test_a_new_format_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that begin with TOY! and hold three little-endian float64 per row, entered in FORMATS, are read."""

    def read_toy(file: LogFile, hints: Hints) -> RawLog:
        content = b"".join(file.blocks())[4:]
        rows = ColumnBuilder()
        for number, (step, reward, length) in enumerate(np.frombuffer(content, "<f8").reshape(-1, 3).tolist(), 1):
            rows.row(number, {"step": step, "reward": reward, "completions/mean_length": length})
        return RawLog(file.path, rows, place="row")

    monkeypatch.setitem(FORMATS, "toy", LogKind(read_toy, file=lambda file: file.head.startswith(b"TOY!")))
    steps = np.arange(1.0, 101)
    table = np.stack([steps, np.linspace(0.2, 0.8, 100), np.full(100, 30.0)], axis=1)
    (tmp_path / "log.toy").write_bytes(b"TOY!" + table.astype("<f8").tobytes())
    run = read(tmp_path / "log.toy")
    assert run.meta.engine == "trl", "formats know nothing of trainers: those are found by the keys"
    np.testing.assert_array_equal(run.table["reward"], table[:, 1])
    assert run.table["length"][0] == 30.0
    assert {finding.status for finding in diagnose(run)} == {"excluded", "cannot tell"}


def test_parquet_without_pyarrow_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="needs pyarrow"):
        parquet.table(tmp_path / "completions_1.parquet")


def test_orjson_and_the_standard_library_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the first piece of a log, where orjson parses: literals of Python, wide numbers, texts, bad bytes."""
    pytest.importorskip("orjson")
    odd = [
        b'{"step": 1, "reward": NaN, "loss": Infinity}', b'{"step": 2, "reward": null, "loss": -1e-320}',
        b'{"step": 3, "reward": true, "loss": 123456789012345678901234567890}', b'{"step": 4, "reward": "0.5"}',
        b'{"step": 5, "reward": 0.1, "note": "\xff"}', b'{"step": 6, "reward": 1' + b"0" * 400 + b"}", b"[1]", b"{}",
        b'{"step": 7, "reward": 0.1, "reward": 0.2}', b'{"step": 8, "reward": nan}',
        b'{"step": 9, "reward": 0.30000000000000004, "a": {"b": 1}}',
    ]  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join([b'{"step": 0, "reward": 0.5}' + b" " * 100, *odd]) + b"\n")
    monkeypatch.setattr(log_file.LogFile.pieces, "__defaults__", (64,))

    def rows() -> list[str]:
        return [repr(row) for _, row in jsonl.objects(log_file.LogFile(path))]

    by_orjson = rows()
    monkeypatch.setattr(log_file, "_loads", lambda: None)
    by_json = rows()
    assert len(by_json) == 11
    wide = "123456789012345678901234567890"
    assert [row.replace(wide, repr(float(wide))) for row in by_json] == by_orjson
