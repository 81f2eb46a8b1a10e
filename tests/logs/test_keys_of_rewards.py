"""Which key is the reward where none is simply called so, and what is asked where it cannot be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.core.run import Run
from grposcope.logs import Hints, read
from grposcope.logs.hints import UndecidedError, UnreadError

REWARD = np.linspace(0.1, 0.6, 30)


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def logged(path: Path, *keys: str, hints: Hints | None = None, **others: float) -> Run:
    """The run in a log whose reward has the first of the keys; the other keys go the other way."""
    rows = [
        {"step": step, "loss": 0.1, **{key: value - k for k, key in enumerate(keys)}, **others}
        for step, value in enumerate(REWARD.tolist(), 1)
    ]
    return read(lines(path / "log.jsonl", rows), hints)


@pytest.mark.parametrize(
    "keys",
    [("avg_r_total",), ("final_reward",), ("reward/selected_mean",), ("metrics.reward",), ("train.reward",),
     ("train/reward",), ("reward.mean",), ("avg_r_total", "avg_r_format", "r_std"), ("total_reward", "format_reward"),
     ("reward_mean", "reward_max", "reward_std"), ("score_mean",), ("returns",),
     ("rollout/reward", "rollout/reward_min"), ("final_reward", "accuracy")],
    ids=lambda keys: keys[0],
)  # fmt: skip
def test_the_one_key_that_may_be_the_reward_is_taken(tmp_path: Path, keys: tuple[str, ...]) -> None:
    run = logged(tmp_path, *keys)
    name = "reward" if "reward" in run.table else "score"
    np.testing.assert_array_equal(run.table[name], REWARD)
    assert run.keys.get(name, name) == keys[0], "as it stands in the file"


def test_a_note_says_what_was_taken(tmp_path: Path) -> None:
    (note,) = [note for note in logged(tmp_path, "final_reward").meta.notes if "final_reward" in note]
    assert note == "final_reward (0.1 → 0.6) is read as the reward, because no key has that name"
    assert not any("taken for the reward" in note for note in logged(tmp_path, "reward").meta.notes)


@pytest.mark.parametrize(
    "keys", [("format_reward", "answer_reward"), ("other_reward", "my_score"), ("final_reward", "total_reward"),
             ("accuracy",), ("length_reward",)],
)  # fmt: skip
def test_what_cannot_be_told_is_asked_with_values(tmp_path: Path, keys: tuple[str, ...]) -> None:
    with pytest.raises(UndecidedError) as error:
        logged(tmp_path, *keys)
    assert f"{keys[0]} (0.1 → 0.6, 30 rows)" in str(error.value)
    assert (error.value.field, error.value.example) == ("columns", f"reward={keys[0]}")
    assert [one.key for one in error.value.seen if one.candidate] == list(keys)
    assert {one.key for one in error.value.seen} == {"step", "loss", *keys}


def test_a_log_without_any_names_its_numbers(tmp_path: Path) -> None:
    with pytest.raises(
        UndecidedError, match=r"no key is named as a reward.*supervised.*gain \(0\.1 → 0\.6, 30 rows\)"
    ) as error:
        logged(tmp_path, "gain")
    assert error.value.example == "reward=gain", "what has no known meaning"


@pytest.mark.parametrize("given", ["train.score_a", "train/score_a", "score_a", "TRAIN/score_a"])
def test_a_key_is_found_as_it_stands_in_the_file(tmp_path: Path, given: str) -> None:
    keys = ("train.score_a", "train.score_b", "train.kl")
    run = logged(tmp_path, *keys, hints=Hints(columns={"reward": given}))
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    assert run.keys["reward"] == "train.score_a"


def test_dots_and_slashes_are_one_separator(tmp_path: Path) -> None:
    run = logged(tmp_path, "reward", **{"eval.acc": 0.5, "train.grad_norm": 1.0, "acc_0.5": 0.5})
    assert run.evaluations.metrics == ("acc",)
    assert run.table["grad_norm"].tolist() == [1.0] * 30
    assert "acc_0.5" in run.table


def test_what_all_keys_begin_with_is_taken_off(tmp_path: Path) -> None:
    rows = [{"reward": value, "step": k} for k, value in enumerate(REWARD.tolist())]
    (tmp_path / "log.json").write_text(json.dumps({"steps": rows}))
    run = read(tmp_path / "log.json")
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    assert run.table["step"].tolist() == list(range(30))
    assert run.keys["reward"] == "steps/reward"


def test_every_refusal_carries_what_the_log_has(tmp_path: Path) -> None:
    rows = [{"step": 1 + k // 3, "reward": value + k % 3} for k, value in enumerate(REWARD.tolist())]
    with pytest.raises(UnreadError, match="micro-batches") as error:
        read(lines(tmp_path / "log.jsonl", rows))
    assert [(one.key, one.values, one.first) for one in error.value.seen] == [("step", 30, 1.0), ("reward", 30, 0.1)]


# rows of several kinds


def kinds(path: Path, key: str, train: str, evaluation: str) -> Run:
    rows: list[dict[str, Any]] = []
    for step, value in enumerate(REWARD.tolist(), 1):
        rows.append({"step": step, key: train, "reward": value})
        if step % 5 == 0:
            rows.append({"step": step, key: evaluation, "reward": 0.9 - value})
    return read(lines(path / "log.jsonl", rows))


@pytest.mark.parametrize(
    ("key", "train", "evaluation"),
    [("split", "train", "eval"), ("phase", "training", "validation"), ("mode", "rl", "test"), ("event", "step", "eval"),
     ("type", "train_step", "eval_step"), ("kind", "rollout", "dev"), ("my_column", "train", "eval"),
     ("stage", "train", "evaluate")],
)  # fmt: skip
def test_a_text_column_splits_training_from_evaluation(tmp_path: Path, key: str, train: str, evaluation: str) -> None:
    run = kinds(tmp_path, key, train, evaluation)
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    np.testing.assert_allclose(run.evaluations.of("reward").value, 0.9 - REWARD[4::5])
    assert f"6 rows with {key} = {evaluation} are evaluations" in run.meta.notes


def test_a_text_column_about_something_else_splits_nothing(tmp_path: Path) -> None:
    rows = [{"step": k, "reward": value, "answer": "valid" if k % 2 else "invalid"} for k, value in enumerate(REWARD)]
    run = read(lines(tmp_path / "log.jsonl", rows))
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    assert not len(run.evaluations)


@pytest.mark.parametrize(("flag", "off"), [(True, False), (1, 0)])
def test_a_flag_splits_as_well(tmp_path: Path, flag: Any, off: Any) -> None:
    rows = [{"step": k, "reward": value, "is_eval": off} for k, value in enumerate(REWARD.tolist())]
    rows += [{"step": k, "reward": 0.0, "is_eval": flag} for k in (10, 20)]
    run = read(lines(tmp_path / "log.jsonl", rows))
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    assert run.evaluations.of("reward").step.tolist() == [10, 20]


def test_events_are_parts_of_a_step_or_left_out_and_never_averaged(tmp_path: Path) -> None:
    """One event has the reward, one the update; per-sample rows would be averaged, and a warm-up has other steps."""
    rows: list[dict[str, Any]] = [{"event": "sft", "step": step, "metrics": {"loss": 3.0}} for step in range(1, 11)]
    for step, value in enumerate(REWARD.tolist(), 1):
        rows += [{"event": "sample", "step": step, "metrics": {"reward": k}} for k in (0.0, 1.0)]
        rows.append({"event": "rollout", "step": step, "metrics": {"reward": value, "length": 50}})
        rows.append({"event": "update", "step": step, "metrics": {"loss": 0.1, "length": 51}})
        rows.append({"event": "checkpoint", "step": step, "path": f"ckpt-{step}"})
    run = read(lines(tmp_path / "log.jsonl", rows))
    assert run.steps == 30
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    assert run.table["loss"].tolist() == [0.1] * 30
    assert set(run.table["length"].tolist()) == {50.0}
    notes = "; ".join(run.meta.notes)
    assert "60 rows with event = sample are left out" in notes
    assert "10 rows with event = sft are left out" in notes
    assert "length of the rows with event = update is left out" in notes


def test_kinds_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    rows = [{"event": name, "step": k, "reward": value + d} for k, value in enumerate(REWARD)
            for name, d in (("red", 0.0), ("blue", 0.1))]  # fmt: skip
    with pytest.raises(
        UnreadError, match=r"red \(30 rows, reward 0\.1 → 0\.6\) and blue \(30 rows, reward 0\.2 → 0\.7\)"
    ):
        read(lines(tmp_path / "log.jsonl", rows))


def test_evaluations_without_a_step_are_of_the_row_before(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for k, value in enumerate(REWARD.tolist(), 1):
        rows += [{"split": "train", "reward": value}, *([{"split": "eval", "acc": 0.5}] if k % 10 == 0 else [])]
    run = read(lines(tmp_path / "log.jsonl", rows))
    assert run.table["step"].tolist() == list(range(1, 31)), "rows of training are counted"
    assert run.evaluations.step.tolist() == [10, 20, 30]
    numbered = [{**row, "step": k} if row["split"] == "train" else row for k, row in enumerate(rows)]
    run = read(lines(tmp_path / "log.jsonl", numbered))
    assert run.evaluations.step.tolist() == [9, 20, 31]
    assert any("3 evaluations have no step" in note for note in run.meta.notes)


# numbers written as texts


@pytest.mark.parametrize(
    ("written", "number"), [("0.53", 0.53), (" 7 ", 7.0), ("-1.5e-3", -1.5e-3), ("12%", 0.12), ("12.5 %", 0.125)]
)
@pytest.mark.parametrize("comma", [False, True])
def test_numbers_written_as_texts_are_numbers(tmp_path: Path, written: str, number: float, comma: bool) -> None:
    rows = [{"step": k, "reward": written} for k in range(12)]
    path = lines(tmp_path / "log", rows)
    if comma:
        path.write_text("step,reward\n" + "".join(f'{k},"{written}"\n' for k in range(12)))
    assert read(path).table["reward"].tolist() == [number] * 12


@pytest.mark.parametrize("written", ["1_000", "0x10", "5 apples", "", "v1.0", "%"])
def test_other_texts_stay_texts(tmp_path: Path, written: str) -> None:
    run = read(lines(tmp_path / "log.jsonl", [{"step": k, "reward": 0.5, "x": written} for k in range(12)]))
    assert "x" in run.unknown
    assert "x" not in run.table


def test_a_label_of_digits_is_no_number(tmp_path: Path) -> None:
    rows = [{"step": k, "reward": 0.5, "run_id": name} for name in ("12", "13") for k in range(12)]
    with pytest.raises(UndecidedError, match="2 runs in it: 1 \\(12\\)"):
        read(lines(tmp_path / "log.jsonl", rows))


def in_lists(path: Path, written: str) -> Path:
    """A log whose rows have a reward of each of four rollouts, whose mean is REWARD."""
    parts = np.array([-0.3, -0.1, 0.1, 0.3])
    rows = [{"step": k + 1, "rewards": (value + parts).tolist(), "loss": 0.1} for k, value in enumerate(REWARD)]
    text = {
        "lines": "\n".join(map(json.dumps, rows)),
        "history": json.dumps({"history": rows}),
        "beside others": json.dumps({"history": rows, "losses": [0.1, 0.2], "steps": 30}),
    }[written]
    path.write_text(text)
    return path


@pytest.mark.parametrize("written", ["lines", "history", "beside others"])
def test_rewards_in_a_list_are_averaged(tmp_path: Path, written: str) -> None:
    run = read(in_lists(tmp_path / "log.json", written))
    np.testing.assert_allclose(run.table["reward"], REWARD)
    assert any("each row logs a list of rewards; their mean is used" in note for note in run.meta.notes)


def test_a_list_with_a_text_in_it_is_no_reward(tmp_path: Path) -> None:
    rows = [{"step": k, "rewards": [value, "failed"], "reward": value} for k, value in enumerate(REWARD)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = read(tmp_path / "log.jsonl")
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    assert "rewards" not in run.table


def test_a_score_beside_what_was_evaluated_apart_is_one_too(tmp_path: Path) -> None:
    """It stands in just their rows, and before the first step, where there is no reward."""
    rows = [{"step": 0, "accuracy": 0.5, "heldout_refusals": 0.1}]
    rows += [{"step": k + 1, "reward": value, "format_acc": 0.2} for k, value in enumerate(REWARD)]
    rows[10] |= {"accuracy": 0.6, "heldout_refusals": 0.2}
    rows[20] |= {"accuracy": 0.7, "heldout_refusals": 0.3}
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = read(tmp_path / "log.jsonl")
    assert run.evaluations.of("accuracy").value.tolist() == [0.5, 0.6, 0.7]
    assert "format_acc" in run.table


def test_a_score_in_rows_with_rewards_alone_is_of_training(tmp_path: Path) -> None:
    rows = [{"step": k + 1, "reward": value, "accuracy": value, "eval_refusals": 0.1} for k, value in enumerate(REWARD)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = read(tmp_path / "log.jsonl")
    assert "accuracy" in run.table
    assert "accuracy" not in run.evaluations.metrics


def test_a_log_of_a_policy_without_a_reward_is_read(tmp_path: Path) -> None:
    rows = [{"step": k, "avg_entropy": 1.0, "avg_clip_fraction": 0.1, "loss": value} for k, value in enumerate(REWARD)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = read(tmp_path / "log.jsonl")
    assert "reward" not in run.table
    assert {"entropy", "clip_fraction", "loss"} <= set(run.table)
    assert any(note.startswith("no key is named as a reward") for note in run.meta.notes)
