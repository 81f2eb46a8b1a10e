"""Console lines of invented trainers: the same run in many styles is read alike, and what is not plain is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grposcope.core.errors import UserError
from grposcope.logs import Hints, read
from grposcope.logs.formats.key_values import parse
from grposcope.logs.hints import LAST, UndecidedError

STEPS = 40
REWARD = np.round(np.random.default_rng(0).normal(0.4, 0.2, STEPS), 4)
KL = np.round(np.abs(np.random.default_rng(1).normal(0.01, 0.004, STEPS)), 6)
LENGTH = np.random.default_rng(2).integers(100, 400, STEPS)

STYLES: dict[str, Callable[[int, float, float, int], str]] = {
    "progress": lambda s, r, k, n: f"Epoch:[1/1]({s}/9751), Reward: {r}, KL_ref: {k}, Avg Response Len: {n}, lr: 1e-06",
    "equals": lambda s, r, k, n: f"step={s} reward={r} kl={k} response_length={n}",
    "bars": lambda s, r, k, n: f"| step: {s} | reward: {r} | kl: {k} | response_len: {n} |",
    "logging": lambda s, r, k, n: (
        f"2026-01-02 10:{s:02}:09,123 - INFO - train.py:88 - step {s}: mean reward {r}, "
        f"KL divergence {k:.3e}, completion length {n} tok"
    ),
    "colours": lambda s, r, k, n: (
        f"\x1b[32m[INFO]\x1b[0m \x1b[1mIteration {s}\x1b[0m reward={r}; kl={k}; completion_len={n}"
    ),
    "tqdm": lambda s, r, k, n: f" 12%|███▌  | {s}/1000 [00:10<01:20, 10.5it/s, reward={r}, kl={k}, gen_len={n}]",
    "ray": lambda s, r, k, n: (
        f"\x1b[36m(Trainer pid=4711, ip=10.0.0.1)\x1b[0m it {s} - reward:{r} - kl:{k} - response_length:{n}"
    ),
    "dashes": lambda s, r, k, n: f"update {s} - avg_reward: {r} - kl: {k} - mean_response_length: {n}.0",
    "meters": lambda s, r, k, n: (
        f"Epoch: [0][{s}/500] Time 0.5 (0.6) Reward {r} (0.4) KL {k} (0.01) Response Length {n} (99)"
    ),
    "printed dict": lambda s, r, k, n: str({"rewards": r, "step": s, "kl": k, "response_length": n}),
    "json in text": lambda s, r, k, n: (
        f'INFO:root:metrics {{"step": {s}, "reward": {r}, "kl": {k}, "response_length": {n}}}'
    ),
    "wrapped": lambda s, r, k, n: (
        f"[rank 0] step={s} reward=tensor({r}, device='cuda:0') kl=np.float64({k}) resp_len={n}"
    ),
    "spread": lambda s, r, k, n: f"Step {s} of 40: reward = {r} ± 0.12, kl = {k} (max 0.3), generation length = {n}",
    "tabs": lambda s, r, k, n: f"global_step\t{s}\treward\t{r}\tkl\t{k}\tresponse_length\t{n}",
    "camel": lambda s, r, k, n: f"TrainStep: {s}  MeanReward: {r}  KL: {k}  AvgResponseLen: {n}",
    "short words": lambda s, r, k, n: f"[{s:03d}] rew {r} ± 0.40 | kl {k} ent 0.4 gn 0.3 len {n} | 12.3s",
    "nanochat": lambda s, r, k, n: f"Step {s}/40 | Average reward: {r} | Average sequence length: {n}.00 | mean KL {k}",
    "counted by rows": lambda s, r, k, n: f">> reward: {r}, kl: {k}, response_length: {n}",
}


def text_of(style: str) -> str:
    lines = ["Loading checkpoint shards: 100%|███| 3/3 [00:02<00:00]", "config: lr=1e-6, group=8"]
    for s in range(1, STEPS + 1):
        lines.append(STYLES[style](s, REWARD[s - 1].item(), KL[s - 1].item(), int(LENGTH[s - 1])))
        if s % 10 == 0:
            lines.append(f"Saved checkpoint to out/step_{s} in 3.2s")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("style", STYLES)
def test_every_style_is_the_same_run(tmp_path: Path, style: str) -> None:
    (tmp_path / "out.log").write_text(text_of(style))
    run = read(tmp_path / "out.log")
    assert run.table["step"].tolist() == list(range(1, STEPS + 1))
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    np.testing.assert_allclose(run.table["kl"], KL, rtol=2e-3)
    np.testing.assert_array_equal(run.table["length"], LENGTH)
    assert run.reading is not None
    assert (run.reading.rows, run.reading.left_out) == (STEPS, 6)
    assert "line 1: Loading" in run.reading.examples[0]


def test_an_epoch_and_a_progress_within_it(tmp_path: Path) -> None:
    lines = [f"Epoch:[{e}/3]({i}/50), Reward: {0.01 * i}, KL_ref: 0.1\n" for e in (1, 2, 3) for i in range(10, 51, 10)]
    (tmp_path / "out.log").write_text("".join(lines))
    run = read(tmp_path / "out.log")
    assert run.table["step"].tolist() == list(range(10, 151, 10))
    assert run.reading is not None
    assert run.reading.step == "Epoch and number 2 of the line"


def test_units_percent_and_words_for_numbers(tmp_path: Path) -> None:
    lines = [f"step {s}: acc 45 %, clip_frac=12%, reward=nan, loss=-inf, toks=1.2k, time 3ms" for s in (1, 2, 3)]
    (tmp_path / "out.log").write_text("\n".join(lines) + "\n")
    table = read(tmp_path / "out.log").table
    assert table["acc"][0] == 0.45
    assert table["clip_fraction"][0] == 0.12
    assert np.isnan(table["reward"]).all()
    assert (table["loss"] == -np.inf).all()
    assert table["toks"][0] == 1200
    assert table["time"][0] == 3


def test_evaluations_are_no_rows_of_training(tmp_path: Path) -> None:
    text = ""
    for s in range(1, 21):
        text += f"[train] step: {s} reward: {s / 100}\n"
        if s % 5 == 0:
            text += f"[eval] step: {s} reward: {1 + s / 100}\neval reward: {2.0 + s}\n"
    (tmp_path / "out.log").write_text(text)
    run = read(tmp_path / "out.log")
    assert run.table["reward"].tolist() == [s / 100 for s in range(1, 21)]
    assert run.evaluations.of("reward").step.tolist() == [5, 10, 15, 20]
    assert "placed at the row before" in " ".join(run.meta.notes)


ASKED: dict[str, tuple[str, str, dict[str, str]]] = {
    "two rewards": (
        "step {s} format_reward={r} answer_reward=0.5 kl=0.1",
        "which number is the reward; candidates: format_reward .* answer_reward",
        {"reward": "format_reward"},
    ),
    "a reward of the batch and an average": (
        "step {s} avg_reward={r} batch_rewards=0.5 kl=0.1", "candidates: avg_reward .* batch_rewards",
        {"reward": "avg_reward"},
    ),
    "other words": ("step {s} my_score={r} gain=0.1 return=2", "candidates: my_score", {"reward": "my_score"}),
    "a step within stages": (
        "stage {e} step {i} tokens={s} reward={r} kl=0.1",
        r"cannot tell which number is the step: none counts up on its own, not even step \(0 to 9\)",
        {"step": "tokens"},
    ),
    "by its place": (
        "stage {e} step {i} {s} reward={r} kl=0.1", "cannot tell which number is the step", {"step": "3"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ASKED)
def test_what_is_not_plain_is_asked(tmp_path: Path, kind: str) -> None:
    line, question, answer = ASKED[kind]
    rows = [line.format(s=s, r=REWARD[s - 1], e=1 + s // 10, i=s % 10) for s in range(1, STEPS)]
    (tmp_path / "out.log").write_text("\n".join(rows) + "\n")
    with pytest.raises(UndecidedError, match=question) as error:
        read(tmp_path / "out.log")
    assert error.value.field == "columns"
    run = read(tmp_path / "out.log", Hints(columns=answer))
    assert run.table["step"].tolist() == list(range(1, STEPS))
    np.testing.assert_array_equal(run.table["reward"], REWARD[: STEPS - 1])


def test_commas_are_read_only_where_they_are_plain(tmp_path: Path) -> None:
    lines = [
        f"step: {s:,}/9,000 | reward: {f'{0.5 + s / 1e5:.4f}'.replace('.', ',')} | kl: 0.1" for s in range(996, 1004)
    ]
    (tmp_path / "out.log").write_text("\n".join(line.replace("/9,000", "") for line in lines) + "\n")
    run = read(tmp_path / "out.log", Hints(columns={"reward": "kl"}))
    assert run.table["step"].tolist() == list(range(996, 1004))
    assert "reward" not in run.keys.values()
    assert "may separate decimals or thousands; write a decimal point" in " ".join(run.meta.notes)


def test_what_is_no_log_of_a_run_is_refused(tmp_path: Path) -> None:
    for text, words in (
        ("step 1: loss=0.5, lr=1e-4\nstep 2: loss=0.4, lr=1e-4\n", "holds no metrics|not a log in a known format"),
        ("reward is high today\n" * 9, "not a log in a known format"),
        ("[eval] step=1 reward=0.5\n[eval] step=2 reward=0.5\n", "cannot be told|no key is named as a reward"),
    ):
        (tmp_path / "out.log").write_text(text)
        with pytest.raises(UserError, match=words):
            read(tmp_path / "out.log")


@pytest.mark.parametrize("line", ["step 41 reward 0.5 kl 0.01 response_length 21", "step 41 reward 0.5 kl 0.0"])
def test_the_last_number_of_an_unfinished_line_is_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "out.log").write_text(text_of("equals") + line)
    run = read(tmp_path / "out.log")
    assert np.isnan(run.table["length" if "length" in line else "kl"][-1])
    assert run.table["reward"][-1] == 0.5


def test_a_long_preamble_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("warning: something about nothing\n" * 5000 + text_of("bars"))
    assert read(tmp_path / "out.log").steps == STEPS


def test_restarts_are_one_run_and_new_runs_are_asked_about(tmp_path: Path) -> None:
    def lines(first: int, last: int, reward: float) -> str:
        return "".join(f"step={s} reward={reward + s / 1000} kl=0.1\n" for s in range(first, last + 1))

    path = tmp_path / "out.log"
    path.write_text(lines(1, 50, 0.1) + lines(41, 80, 0.2))
    resumed = read(path)
    assert resumed.table["step"].tolist() == list(range(1, 81))
    assert len(resumed.segments) == 2
    path.write_text(lines(1, 5, 0.1) + lines(1, 50, 0.2))
    assert read(path).table["reward"][0] == 0.201, "a false start is no run of its own"
    path.write_text(lines(1, 50, 0.1) + lines(41, 60, 0.2) + lines(1, 30, 0.3))
    with pytest.raises(
        UndecidedError, match="2 runs in it: 1: steps 1 to 60, from line 1; 2: steps 1 to 30, from line 71"
    ):
        read(path)
    assert read(path, Hints(run=1)).steps == 60
    assert read(path, Hints(run=LAST)).steps == 30
    assert "of 2 runs in this log, this is 2: steps 1 to 30" in " ".join(read(path, Hints(run=2)).meta.notes)
    with pytest.raises(UndecidedError):
        read(path, Hints(run=3))


def test_rows_of_one_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    draws = rng.normal(0.5, 0.1, (30, 4))
    path = tmp_path / "log.jsonl"

    def write(values: np.ndarray) -> None:
        path.write_text("".join(
            f'{{"step": {s}, "reward": {value}, "kl": {0.1 * k}}}\n'
            for s, row in enumerate(values, 1) for k, value in enumerate(row)
        ))  # fmt: skip

    write(draws)
    run = read(path)
    np.testing.assert_allclose(run.table["reward"], draws.mean(1))
    np.testing.assert_allclose(run.table["kl"], 0.15)
    assert "120 rows to 30 steps: they are micro-batches, 4 per step" in " ".join(run.meta.notes)
    write(draws + np.array([0.0, 0.2, 0.0, 0.0]))
    with pytest.raises(UndecidedError, match="120 rows for 30 steps: micro-batches"):
        read(path)
    asked = read(path, Hints(average=True))
    np.testing.assert_allclose(asked.table["reward"], draws.mean(1) + 0.05)
    assert "as asked" in " ".join(asked.meta.notes)


def test_interleaved_runs_are_hardly_ever_taken_for_micro_batches(tmp_path: Path) -> None:
    """Runs whose levels wander apart are told from micro-batches, and micro-batches are asked about 1 time in 1000."""
    from grposcope.logs.per_step import _micro_batches

    rng = np.random.default_rng(4)
    sizes = np.full(61, 4)
    micro = sum(_micro_batches([rng.normal(0, 1, 244)], sizes) for _ in range(2000))
    apart = sum(
        _micro_batches([(np.cumsum(rng.normal(0, 0.1, (61, 4)), 0) + rng.normal(0, 0.3, (61, 4))).ravel()], sizes)
        for _ in range(500)
    )
    assert micro >= 1985
    assert apart <= 25


def test_an_underscore_is_part_of_a_number_only_between_digits() -> None:
    assert [one.value for one in parse("reward=1_000 kl=0_ step=2").numbers] == [1000, 2]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=120) | st.sampled_from([STYLES[s](7, 0.5, 0.1, 99) for s in STYLES]), max_size=12))
def test_any_text_is_a_run_or_one_clear_line(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "out.log"
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    try:
        run = read(path)
    except UserError as error:
        said = str(error)
    else:
        said = str(path)
        assert all(column.shape == (run.steps,) for column in run.table.values())
    assert "\n" not in said
    assert str(path) in said


@pytest.mark.parametrize(
    "piece",
    ["a:", "1,", "1/", "(", "a ", "1 ", "=", "tensor(", "12:", "%|", "1-", "± ", "np.a(", "e", "-", "2026-01-01 "],
)
def test_hostile_lines_take_time_in_proportion(piece: str) -> None:
    began = time.process_time()
    parse("step 1 reward " + piece * 200_000)
    assert time.process_time() - began < 10  # in proportion to its square it would take minutes


@pytest.mark.slow
def test_twenty_thousand_lines_in_seconds(tmp_path: Path) -> None:
    with (tmp_path / "out.log").open("w") as file:
        for s in range(1, 20_001):
            file.write(STYLES["progress"](s, 0.5, 0.1, 99) + "\n")
    began = time.process_time()
    assert read(tmp_path / "out.log").steps == 20_000
    assert time.process_time() - began < 12


def test_lines_with_nothing_but_the_reward_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("Starting\n" + "".join(f"  Batch: mean_reward={r}\n" for r in REWARD))
    run = read(path)
    assert (run.table["step"].tolist(), run.table["reward"].tolist()) == ([*range(1, STEPS + 1)], REWARD.tolist())
    assert any("no number counts steps" in note for note in run.meta.notes)
    path.write_text("Starting\n" + "".join(f"  Batch: mean_reward={r}\n" for r in REWARD[:4]))
    with pytest.raises(UserError, match="not a log in a known format"):
        read(path)


def test_an_object_of_parts_is_the_components_of_the_reward(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [
        {"global_step": i, "reward": float(r), "breakdown": {"form": r / 2, "answer": r / 2, "total": float(r)}}
        for i, r in enumerate(REWARD)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read(path)
    assert {name for name in run.table if name.startswith("component/")} == {"component/form", "component/answer"}
    assert run.table["component/form"].tolist() == (REWARD / 2).tolist()


def test_a_notebook_whose_outputs_print_something_else_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "run.ipynb"
    cell = {"cell_type": "code", "outputs": [{"output_type": "stream", "text": ["Loading the reward model\n"]}]}
    path.write_text(json.dumps({"nbformat": 4, "cells": [cell]}))
    with pytest.raises(UserError, match="no output shows steps and rewards"):
        read(path)
