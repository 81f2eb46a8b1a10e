"""Rows that stand in another order than their steps, and steps that count within epochs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.core.run import Run
from grposcope.logs import read
from grposcope.logs.hints import UndecidedError

ROWS = [
    {"step": step, "reward": round(0.2 + 0.002 * step + 0.01 * noise, 6), "kind": "a" if step % 2 else "b"}
    for step, noise in enumerate(np.random.default_rng(0).normal(size=200).tolist(), 1)
]


def written(path: Path, rows: Sequence[dict[str, Any]], form: str) -> Run:
    """The run of these rows as JSON lines, CSV or console lines."""
    texts = {
        "jsonl": [json.dumps(row) for row in rows],
        "csv": [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)],
        "log": [" ".join(f"{key}: {value}" for key, value in row.items()) for row in rows],
    }
    place = path / f"run.{form}"
    place.write_text("\n".join(texts[form]) + "\n")
    return read(place)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("order", ["as text", "newest first", "pages, newest first"])
def test_rows_in_another_order_are_no_restarts(tmp_path: Path, form: str, order: str) -> None:
    """Each step stands in one place, so that the rows are those of one run; 181 of 200 were taken for restarts."""
    pages = [ROWS[k : k + 12] for k in range(0, len(ROWS), 12)]
    rows = {
        "as text": sorted(ROWS, key=lambda row: str(row["step"])),
        "newest first": ROWS[::-1],
        "pages, newest first": [row for page in pages[::-1] for row in page],
    }[order]
    run = written(tmp_path, rows, form)
    assert run.steps == len(ROWS)
    np.testing.assert_array_equal(run.table["step"], [row["step"] for row in ROWS])
    np.testing.assert_array_equal(run.table["reward"], [row["reward"] for row in ROWS])
    assert any("not stand in the order of their steps" in note for note in run.meta.notes)
    assert not run.segments


def test_console_lines_newest_first(tmp_path: Path) -> None:
    rows = [{"step": row["step"], "reward": row["reward"]} for row in ROWS]
    run = written(tmp_path, rows[::-1], "log")
    np.testing.assert_array_equal(run.table["reward"], [row["reward"] for row in rows])


def test_a_step_that_comes_back_is_a_restart_in_any_order(tmp_path: Path) -> None:
    rows = [*ROWS[:50], *ROWS[20:]]
    run = written(tmp_path, rows, "jsonl")
    assert run.steps == 200
    assert len(run.segments) == 2
    with pytest.raises(UndecidedError, match="2 runs in it"):
        written(tmp_path, [*ROWS[100:], *ROWS[:100]], "jsonl")


@pytest.mark.parametrize("form", ["jsonl", "csv", "log"])
def test_a_step_within_each_epoch_counts_over_all(tmp_path: Path, form: str) -> None:
    """They were four runs, or no step at all."""
    rows = [{"epoch": k // 50, "step": k % 50, "reward": ROWS[k]["reward"]} for k in range(200)]
    run = written(tmp_path, rows, form)
    np.testing.assert_array_equal(run.table["step"], np.arange(200))
    every = [{"epoch": k // 5, "step": 10 * (k % 5) + 10, "reward": ROWS[k]["reward"]} for k in range(200)]
    np.testing.assert_array_equal(written(tmp_path, every, form).table["step"], np.arange(10, 2001, 10))


def test_an_epoch_that_goes_on_without_a_new_step_leaves_the_steps_alone(tmp_path: Path) -> None:
    rows = [{"epoch": k // 50, "step": k, "reward": ROWS[k]["reward"]} for k in range(200)]
    np.testing.assert_array_equal(written(tmp_path, rows, "jsonl").table["step"], np.arange(200))


def test_a_count_of_failures_is_no_progress_within_the_epoch(tmp_path: Path) -> None:
    """Fifteen groups an epoch, some of which failed: the epochs count the rows, not fifteen times as much."""
    failed = np.random.default_rng(1).integers(0, 4, 200)
    lines = [f"Epoch {k + 1} | reward {ROWS[k]['reward']} | failed {failed[k]}/15" for k in range(200)]
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    np.testing.assert_array_equal(read(tmp_path / "run.log").table["step"], np.arange(1, 201))
