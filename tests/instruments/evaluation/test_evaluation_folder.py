"""The folder of an evaluation: whole rows only, nothing but its own evaluation, one process at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from grposcope.core.errors import UserError
from grposcope.instruments.evaluation import record as evaluation
from grposcope.instruments.evaluation.record import (
    Completion,
    EvaluatedProblem,
    EvaluatedTask,
    EvaluationPlan,
    EvaluationView,
)

PLAN = EvaluationPlan(("a", "b"), ("sums",), 2)
TASKS = {"sums": EvaluatedTask("sums", 3, 3, 8, "d1", {"no answer": 2})}


def row(model: str, index: int, text: str = "1") -> EvaluatedProblem:
    completions = (
        Completion(text, "right", 1.0, 3, False),
        Completion("\x00é\n\u2028", "unread", 0.0, 8, True, ""),
    )
    return EvaluatedProblem(model, "sums", index, f"id{index}", "1+0=", "1", completions)


def fill(folder: Path, rows: list[EvaluatedProblem], plan: EvaluationPlan = PLAN, **tasks: EvaluatedTask) -> None:
    with evaluation.opened(folder, plan, {**TASKS, **tasks}, EvaluationView((1,), {"a": ("a",)}), {}, "now") as writer:
        writer.check_model("a", "w1")
        writer.add(rows)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rows = [row("a", 2), row("a", 0), row("b", 1)]
    fill(tmp_path / "e", rows)
    record = evaluation.read(tmp_path / "e")
    assert record.plan == PLAN
    assert record.tasks == TASKS
    assert record.models == {"a": "w1"}
    assert record.view == EvaluationView((1,), {"a": ("a",)})
    assert record.rows["a", "sums"] == (rows[1], replace(rows[0], completions=rows[0].completions))
    assert record.missing == 3


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_torn_line_is_dropped_by_readers_and_cut_off_by_the_next_writer(tmp_path: Path, kept: int) -> None:
    """A process killed in the middle of a write, at any byte of the last line."""
    fill(tmp_path / "e", [row("a", i) for i in range(kept + 1)])
    path = tmp_path / "e" / evaluation.ROWS
    whole = path.read_bytes()
    last = whole[: whole.rstrip(b"\n").rfind(b"\n") + 1]
    for length in range(len(last), len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        assert len(evaluation.read(tmp_path / "e").rows.get(("a", "sums"), ())) == kept
        fill(tmp_path / "e", [])
        assert path.read_bytes() == last
    fill(tmp_path / "e", [row("a", kept)])
    assert path.read_bytes() == whole


def test_a_long_torn_line_is_cut_off(tmp_path: Path) -> None:
    fill(tmp_path / "e", [row("a", 0)])
    path = tmp_path / "e" / evaluation.ROWS
    whole = path.read_bytes()
    path.write_bytes(whole + b"{" + b"x" * 200_000)
    fill(tmp_path / "e", [])
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"models": ("a", "c")}, "models a, b there, a, c here"),
        ({"samples": 4}, "samples 2 there, 4 here"),
        ({"temperature": 0.5}, "temperature 1.0 there, 0.5 here"),
        ({"tasks": ("gsm8k",)}, "tasks sums there, gsm8k here"),
        ({"limit": 5, "seed": 1}, "limit None there, 5 here; seed 0 there, 1 here"),
    ],
)
def test_a_folder_of_another_evaluation_is_refused(tmp_path: Path, changes: dict, named: str) -> None:
    fill(tmp_path / "e", [row("a", 0)])
    before = (tmp_path / "e" / evaluation.PLAN).read_bytes()
    with pytest.raises(UserError, match="holds another evaluation") as error:
        fill(tmp_path / "e", [], replace(PLAN, **changes))
    assert named in str(error.value)
    assert "\n" not in str(error.value)
    assert (tmp_path / "e" / evaluation.PLAN).read_bytes() == before


def test_other_problems_or_other_weights_of_the_same_name_are_refused(tmp_path: Path) -> None:
    fill(tmp_path / "e", [row("a", 0)])
    with pytest.raises(UserError, match="the problems of sums have changed"):
        fill(tmp_path / "e", [], sums=replace(TASKS["sums"], digest="d2"))
    with (
        evaluation.opened(tmp_path / "e", PLAN, TASKS, EvaluationView(), {}, "now") as writer,
        pytest.raises(UserError, match="other weights of a"),
    ):
        writer.check_model("a", "w2")


def test_a_folder_with_other_files_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds other files"):
        fill(tmp_path, [])
    with pytest.raises(UserError, match="is not a folder"):
        fill(tmp_path / "notes.txt", [])


def test_two_processes_do_not_fill_one_folder(tmp_path: Path) -> None:
    with (
        evaluation.opened(tmp_path / "e", PLAN, TASKS, EvaluationView(), {}, "now"),
        pytest.raises(UserError, match="another evaluation is running"),
    ):
        fill(tmp_path / "e", [])


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"format": 9, "plan": {}}', '{"format": 1, "plan": 3}', '{"format": 1}', "{}"]
)
def test_a_damaged_plan_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / evaluation.PLAN).write_text(content)
    with pytest.raises(UserError, match=r"evaluation\.json") as error:
        evaluation.read(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", ["[]", "{", '{"model": "a"}', json.dumps({"model": "a", "index": "x"})])
def test_a_damaged_row_is_named(tmp_path: Path, line: str) -> None:
    fill(tmp_path / "e", [row("a", 0)])
    path = tmp_path / "e" / evaluation.ROWS
    path.write_text(path.read_text() + line + "\n" + path.read_text())
    with pytest.raises(UserError, match=r"problems\.jsonl, line 2"):
        evaluation.read(tmp_path / "e")
