"""A file that holds the same rollouts twice is read once; rollouts that are alike by chance are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grposcope.logs import read_rollouts


def lines(count: int) -> list[dict[str, Any]]:
    return [
        {"step": k // 8 + 1, "prompt": f"p{k // 4}", "completion": f"text {k}", "reward": float(k % 3 == 0)}
        for k in range(count)
    ]


def found(path: Path, rows: list[dict[str, Any]]) -> tuple[int, str]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_rollouts.rollouts(path)
    return len(read.rows), " ".join(read.notes)


def test_the_second_copy_is_left_out(tmp_path: Path) -> None:
    count, notes = found(tmp_path / "a.jsonl", lines(64) * 2)
    assert count == 64
    assert "The 64 rollouts stand there twice" in notes


def test_rollouts_that_differ_are_kept(tmp_path: Path) -> None:
    other = lines(64)
    other[-1]["reward"] = 0.5
    assert found(tmp_path / "a.jsonl", lines(64) + other)[0] == 128
    assert found(tmp_path / "b.jsonl", lines(8) * 2)[0] == 16
    alike = [{**row, "completion": "same"} for row in lines(64)]
    assert found(tmp_path / "c.jsonl", alike * 2)[0] == 128


def test_two_processes_that_drew_the_same_are_no_file_written_twice(tmp_path: Path) -> None:
    one_step = [{**row, "step": 1} for row in lines(64)]
    assert found(tmp_path / "a.jsonl", one_step * 2) == (128, "")
    without = [{key: value for key, value in row.items() if key != "step"} for row in lines(64)]
    assert found(tmp_path / "b.jsonl", without * 2)[0] == 128
