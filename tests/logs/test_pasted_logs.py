"""Console output as people paste it: wrapped by a terminal, glued to progress bars, of several starts, in notebooks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.logs import read
from grposcope.logs.hints import UndecidedError
from grposcope.signs import run_outcome

N = 40
REWARDS = [round(0.2 + 0.01 * k + 0.01 * noise, 4) for k, noise in enumerate(np.random.default_rng(0).normal(size=N))]


def trl(k: int) -> str:
    """Row k of TRL as transformers prints it."""
    return str({"loss": 0.001 * k, "grad_norm": 1.5, "reward": REWARDS[k], "reward_std": 0.3, "kl": 0.02,
                "completions/mean_length": 120.5, "completions/clipped_ratio": 0.01, "entropy": 0.8})  # fmt: skip


def verl(k: int) -> str:
    """Row k of verl as it prints it."""
    values = {
        "actor/entropy": 0.8, "actor/grad_norm": 1.5, "actor/pg_loss": 0.001 * k, "response_length/mean": 120.5,
        "critic/score/mean": REWARDS[k], "critic/rewards/mean": REWARDS[k], "perf/throughput": 1000.25,
    }  # fmt: skip
    return " - ".join([f"step:{k + 1}", *(f"{key}:{value}" for key, value in values.items())])


def bar(step: int, of: int = N) -> str:
    """A progress bar of tqdm."""
    return f"{100 * step // of:3d}%|####      | {step}/{of} [00:10<10:00,  1.25s/it]"


def written(path: Path, lines: Sequence[str], name: str = "out.log") -> Path:
    (path / name).write_text("\n".join(lines) + "\n")
    return path / name


@pytest.mark.parametrize("row", [trl, verl], ids=["TRL", "verl"])
@pytest.mark.parametrize("width", [80, 120])
def test_lines_that_a_terminal_wrapped_are_whole(tmp_path: Path, row: Callable[[int], str], width: int) -> None:
    """Every number is that of the lines as they were; the reward was lost with all that stood behind the edge."""
    whole = read(written(tmp_path, [row(k) for k in range(N)], "whole.log"))
    pieces = [row(k)[at : at + width] for k in range(N) for at in range(0, len(row(k)), width)]
    wrapped = read(written(tmp_path, pieces))
    assert wrapped.table.keys() == whole.table.keys()
    for name in whole.table:
        np.testing.assert_array_equal(wrapped.table[name], whole.table[name])
    assert not any("cut off" in note for note in wrapped.meta.notes)


def test_a_dict_that_ends_nowhere_is_cut_off(tmp_path: Path) -> None:
    lines = [trl(0), trl(1)[:60], "an error of another program", trl(2), trl(3)[:60]]
    run = read(written(tmp_path, lines))
    assert run.steps == 4
    assert any("2 rows are cut off, the first in line 2" in note for note in run.meta.notes)


@pytest.mark.parametrize("label", ["Training Progress: ", " Training Progress: ", " "])
def test_a_line_with_a_progress_bar_behind_it_is_whole(tmp_path: Path, label: str) -> None:
    """Its last value counts, and no note says that lines are cut off."""
    run = read(written(tmp_path, [f"{verl(k)}{label}{bar(k + 1)}" for k in range(N)]))
    assert not any("cut off" in note for note in run.meta.notes)
    np.testing.assert_array_equal(run.table["perf/throughput"], 1000.25)


@pytest.mark.parametrize("told", ["bars", "epochs"])
def test_several_starts_of_a_program_are_several_runs(tmp_path: Path, told: str) -> None:
    """They were joined into one run of as many steps as all of them have rows."""
    lines = []
    for rows in (15, N):
        for k in range(rows):
            epoch = f"{trl(k)[:-1]}, 'epoch': {0.01 * (k + 1):.2f}}}"
            lines += [bar(k + 1), trl(k)] if told == "bars" else [epoch]
    path = written(tmp_path, lines)
    with pytest.raises(UndecidedError, match=rf"2 runs in it: 1: steps 1 to 15, .*; 2: steps 1 to {N}"):
        read(path)


def test_a_supervised_phase_is_no_start_of_the_run(tmp_path: Path) -> None:
    """Rows without a reward come before the others, as of a warm-up by the same program: there is one run."""
    warm_up = [f"{{'loss': {2 - 0.1 * k:.2f}, 'grad_norm': 1.0, 'epoch': {0.1 * (k + 1):.2f}}}" for k in range(15)]
    rows = [f"{trl(k)[:-1]}, 'epoch': {0.01 * (k + 1):.2f}}}" for k in range(N)]
    run = read(written(tmp_path, [*warm_up, *rows]))
    np.testing.assert_array_equal(run.table["reward"][np.isfinite(run.table["reward"])], REWARDS)
    bars = [line for k, row in enumerate(warm_up) for line in (bar(k + 1, 15), row)]
    assert read(written(tmp_path, [*bars, *(line for k in range(N) for line in (bar(k + 1), trl(k)))])).steps == 15 + N


def test_the_bar_at_the_end_says_how_many_steps_a_row_stands_for(tmp_path: Path) -> None:
    rows = [trl(k) for k in range(N)]
    np.testing.assert_array_equal(read(written(tmp_path, [*rows, bar(200, 200)])).table["step"], np.arange(5, 201, 5))
    before = [bar(1000, 1000), *rows]
    np.testing.assert_array_equal(read(written(tmp_path, before)).table["step"], np.arange(1, N + 1))
    not_done = [*rows, bar(199, 200)]
    np.testing.assert_array_equal(read(written(tmp_path, not_done)).table["step"], np.arange(1, N + 1))


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_a_notebook_with_indents_is_a_notebook(tmp_path: Path, indent: int | None) -> None:
    """The table counts, not what the cells printed beside it; with indents the whole was read as console output."""
    cells = "".join(f"<tr><td>{k + 1}</td><td>0.01</td><td>{REWARDS[k]}</td></tr>" for k in range(N))
    head = "<tr><th>Step</th><th>Training Loss</th><th>reward</th></tr>"
    outputs = [
        {"output_type": "stream", "text": [f"{trl(k)}\n" for k in range(5)]},
        {"output_type": "display_data", "data": {"text/html": [f"<table>{head}{cells}</table>"]}},
    ]
    content: dict[str, Any] = {"cells": [{"cell_type": "code", "outputs": outputs}], "metadata": {}, "nbformat": 4}
    (tmp_path / "run.ipynb").write_text(json.dumps(content, indent=indent))
    run = read(tmp_path / "run.ipynb")
    assert run.steps == N
    np.testing.assert_array_equal(run.table["reward"], REWARDS)


@pytest.mark.parametrize(("clock", "value"), [("Wall time", "Value"), ("wall_time_s", "val"), ("walltime", "level")])
def test_a_wall_time_is_not_proposed_as_the_reward(tmp_path: Path, clock: str, value: str) -> None:
    rows = [f"{clock},step,{value}", *(f"{1.7e9 + 10 * k},{k},{REWARDS[k]}" for k in range(N))]
    with pytest.raises(UndecidedError) as error:
        read(written(tmp_path, rows, "run.csv"))
    assert error.value.example == f"reward={value}"


@pytest.mark.parametrize(
    ("first", "left_out"),
    [
        ({"reward": 0.95}, True),
        ({"reward": 1.0, "loss": 0.0, "entropy": 0.0}, True),
        ({"reward": 0.95, "loss": 0.02, "entropy": 0.8}, False),
        ({"reward": 0.22}, False),
    ],
    ids=["evaluation", "placeholder", "training", "same level"],
)
def test_a_first_row_of_another_kind_is_no_row_of_training(
    tmp_path: Path, first: dict[str, float], left_out: bool
) -> None:
    """A reward far from the others in a row that has nothing else, or zeros, is not where the run began."""
    rows = [{"step": k + 1, "reward": REWARDS[k], "loss": 0.01 * (k % 3 + 1), "entropy": 0.8} for k in range(N)]
    texts = [json.dumps(row) for row in ({"step": 0, **first}, *rows)]
    run = read(written(tmp_path, texts, "run.jsonl"))
    assert run.steps == N + (not left_out)
    assert any("no row of training" in note for note in run.meta.notes) == left_out


def test_steps_of_a_record_without_rows_are_those_between_its_evaluations(tmp_path: Path) -> None:
    """It said “over 0 steps”."""
    rows = [*({"step": 10 * k, "eval_accuracy": 0.3 + 0.05 * k} for k in range(10)), {"step": 90, "reward": 0.5}]
    run = read(written(tmp_path, [json.dumps(row) for row in rows], "run.jsonl"))
    empty = replace(run, table={name: column[:0] for name, column in run.table.items()})
    assert run_outcome.steps(empty) == 90


def test_a_step_of_verl_with_a_line_for_each_value(tmp_path: Path) -> None:
    """As it is laid out for people to read; what stands between two steps is no part of either."""
    laid_out = [line for k in range(N) for line in [*verl(k).replace(" - ", "\n - ").split("\n"), "", "saving"]]
    whole = read(written(tmp_path, [verl(k) for k in range(N)], "whole.log"))
    run = read(written(tmp_path, laid_out))
    assert run.table.keys() == whole.table.keys()
    for name in whole.table:
        np.testing.assert_array_equal(run.table[name], whole.table[name])


TABLE = [{"step": k + 1.0, "loss": 0.01 * k, "reward": REWARDS[k], "reward_std": 0.3, "kl": 0.02} for k in range(N)]


def as_bars(outer: bool) -> list[str]:
    """The table as a notebook's is pasted into an issue, with or without bars at the ends of its lines."""
    head = ["Step", "Training Loss", "reward", "reward_std", "kl", "rewards / format_reward / mean"]
    lines = [head, ["--"] * len(head), *([*map(str, row.values()), "0.5"] for row in TABLE)]
    return [f"| {' | '.join(cells)} |" if outer else " | ".join(cells) for cells in lines]


def as_columns() -> list[str]:
    """The table in columns that line up by spaces."""
    rows = [TABLE[0].keys(), *(map(str, row.values()) for row in TABLE)]
    return ["".join(f"{cell:<24}" for cell in row).rstrip() for row in rows]


@pytest.mark.parametrize("around", [[], ["Here is my log, the reward is flat:", ""]], ids=["alone", "with text"])
@pytest.mark.parametrize("form", ["bars", "outer bars", "columns"])
def test_a_pasted_table_is_read(tmp_path: Path, form: str, around: list[str]) -> None:
    lines = as_columns() if form == "columns" else as_bars(form == "outer bars")
    run = read(written(tmp_path, [*around, *lines, *around], "issue.md"))
    for name in ("step", "loss", "reward", "kl"):
        np.testing.assert_array_equal(run.table[name], [row[name] for row in TABLE])
    assert form == "columns" or "component/format_reward" in run.table


def test_cells_without_a_value_and_lines_of_other_lengths(tmp_path: Path) -> None:
    lines = as_bars(False)
    lines[3] = lines[3].replace("0.02", "No Log")
    lines[5] = " | ".join(lines[5].split(" | ")[:3])
    run = read(written(tmp_path, lines, "issue.md"))
    assert run.steps == N - 1
    assert np.isnan(run.table["kl"]).sum() == 1
    assert any("another number of cells than 6 were left out: 6" in note for note in run.meta.notes)


def test_a_table_of_settings_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a log in a known format"):
        read(written(tmp_path, ["| setting | value |", "| -- | -- |", "| beta | 0.04 |", "| group | 8 |"], "issue.md"))


def test_rows_without_their_first_brace(tmp_path: Path) -> None:
    """As where part of a line was copied; a dict with a pair in each line is none."""
    whole = read(written(tmp_path, [trl(k) for k in range(N)], "whole.log"))
    run = read(written(tmp_path, [trl(k).removeprefix("{") for k in range(N)]))
    np.testing.assert_array_equal(run.table["reward"], whole.table["reward"])


def test_an_evaluation_whose_times_alone_are_marked(tmp_path: Path) -> None:
    """Unsloth's row of an evaluation has eval_loss, and the lengths of its completions under the names of training."""
    held_out = str({"eval_loss": 3.4e-08, "eval_runtime": 62.4, "completions/mean_length": 40.1, "num_tokens": 5.0})
    run = read(written(tmp_path, [trl(0), held_out, trl(1), trl(2)]))
    assert run.steps == 3
    np.testing.assert_array_equal(run.table["length"], [120.5] * 3)


def test_a_kl_that_is_never_a_number_is_told(tmp_path: Path) -> None:
    lines = [line.replace(" | 0.02 |", " | nan |") for line in as_bars(False)]
    run = read(written(tmp_path, lines, "issue.md"))
    assert any(note.startswith(f"kl is NaN in all {N} rows") for note in run.meta.notes)


def test_functions_of_a_reward_are_its_parts(tmp_path: Path) -> None:
    """As MLX prints them."""
    lines = [
        f"Iter {k + 1}: Train loss 0.05, Total rewards mean {REWARDS[k]}, KL 0.0, r1_format_reward_func mean 0.375, "
        f"r1_format_reward_func std 0.2, Learning Rate 1.0e-05"
        for k in range(N)
    ]
    run = read(written(tmp_path, lines))
    np.testing.assert_array_equal(run.table["component/r1_format_reward_func"], [0.375] * N)
    np.testing.assert_array_equal(run.table["component_std/r1_format_reward_func"], [0.2] * N)
