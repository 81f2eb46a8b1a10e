"""Rollouts in tables of Weights & Biases, as TRL and verl write them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from grposcope.core.errors import UserError
from grposcope.logs import read_rollouts
from grposcope.logs.trainers import wandb_tables


def written(path: Path, columns: list[str], data: list[list[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"columns": columns, "data": data}))
    return path


def test_trl_writes_a_row_a_rollout(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "files" / "media" / "table"
    names = ["step", "prompt", "completion", "right", "form"]
    written(folder / "completions_8_ab.table.json", names, [["4", "p", "b", "1.0", "0.5"]])
    written(folder / "completions_3_cd.table.json", names, [["2", "p", "a", "0.0", "0.5"], ["2", "p", "c", "None", ""]])
    written(folder / "other_3_cd.table.json", ["x"], [[1]])
    for place in (tmp_path / "run", folder):
        rows = read_rollouts.rollouts(place).rows
        assert [(row.step, row.prompt, row.completion) for row in rows] == [(2, "p", "a"), (2, "p", "c"), (4, "p", "b")]
        assert [dict(row.rewards) for row in rows] == [{"right": 0.0, "form": 0.5}, {}, {"right": 1.0, "form": 0.5}]
        assert all(math.isnan(row.reward) for row in rows)
    (one,) = read_rollouts.rollouts(folder / "completions_8_ab.table.json").rows
    assert one.completion == "b"


def test_verl_writes_a_row_a_step_and_all_of_them_again(tmp_path: Path) -> None:
    names = ["step", "input_1", "output_1", "score_1", "input_2", "output_2", "score_2"]
    first = ["0", "p", "a", "1", "q", "b", "-0.5"]
    written(tmp_path / "val" / "generations_0_a.table.json", names, [first])
    written(tmp_path / "val" / "generations_9_b.table.json", names, [first, ["10", "p", "c", 0.0, "q", "d", 1]])
    rows = read_rollouts.rollouts(tmp_path).rows
    assert [(row.step, row.prompt, row.completion, row.reward) for row in rows] == [
        (0, "p", "a", 1.0), (0, "q", "b", -0.5), (10, "p", "c", 0.0), (10, "q", "d", 1.0),
    ]  # fmt: skip


def test_what_is_no_table_is_none(tmp_path: Path) -> None:
    assert wandb_tables.find(tmp_path) is None
    (tmp_path / "a.table.json").write_text('{"columns": ["step", "prompt", "completion"], "data": [[1]]}')
    assert wandb_tables.find(tmp_path) is None
    with pytest.raises(UserError, match="is no table"):
        list(wandb_tables.rollouts(tmp_path / "a.table.json"))
    path = written(tmp_path / "b.table.json", ["step", "prompt", "completion"], [["x", "p", "c"]])
    with pytest.raises(UserError, match="step is 'x'"):
        list(wandb_tables.rollouts(path))
