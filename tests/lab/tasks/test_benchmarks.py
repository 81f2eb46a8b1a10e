"""Benchmark files: every layout, its quirks, and the real files where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grposcope.core.errors import UserError
from grposcope.lab.tasks import grading
from grposcope.lab.tasks.benchmarks import Benchmark

pytest.importorskip("math_verify", reason="grading needs math-verify")

ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"Body": "Ann has 5.", "Question": "How many?", "Answer": 5.0}, "Ann has 5. How many?", "5"),
    ({"Body": "If Ann has 5", "Question": "How many?", "Answer": 5.0}, "If Ann has 5, How many?", "5"),
    ({"body": "A, ", "question": "how many?", "answer": "9 (apples)"}, "A, how many?", "9"),
    ({"body": "B.", "question": "How many?", "answer": "14  (seats)"}, "B. How many?", "14"),
    ({"body": "B.", "question": "How many?", "answer": "-(1/3)"}, "B. How many?", "-(1/3)"),
    ({"input": "How many ?", "target": 43.0}, "How many ?", "43"),
    ({"input": "How many ?", "target": 0.625}, "How many ?", "0.625"),
    ({"context": None, "question": "Q", "final_answer": ["$69$,$84$"]}, "Q", "$69$,$84$"),
    ({"context": "Let x be 1.", "question": "Q", "final_answer": ["1", "2"]}, "Let x be 1. Q", "1, 2"),
    ({"problem": "P", "answer": 27.0, "question": "P"}, "P", "27"),
    ({"problem": "P", "solution": "so \\boxed{9}", "answer": "080"}, "P", "080"),
    ({"problem": "P", "solution": "\\boxed{5}, thus\n$\\boxed{\\frac{1}{2}}$ m."}, "P", "\\frac{1}{2}"),
    ({"problem": "P", "solution": "\\boxed{-1./3}"}, "P", "-1/3"),
    ({"problem": "P", "solution": "\\boxed{np.arcsin(10/13)}"}, "P", "\\arcsin(10/13)"),
    ({"question": "Simplify", "answer": "$10-4 n$"}, "Simplify", "$10-4 n$"),
    ({"question": "How many?", "answer": "5+5=10\n#### 10"}, "How many?", "10"),
]


def _write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(("row", "prompt", "answer"), ROWS)
def test_every_layout(tmp_path: Path, row: dict[str, Any], prompt: str, answer: str) -> None:
    (problem,) = Benchmark(_write(tmp_path / "set.jsonl", [row])).problems("heldout")
    assert (problem.id, problem.prompt, problem.answer) == ("set-1", prompt, answer)
    assert dict(problem.fields) == row


def test_rows_left_out_are_counted(tmp_path: Path) -> None:
    explained = "It means that the two vectors have their tails at the same point"
    answers = ["5", "", None, explained, "$\\operatorname{arctan} x+\\mathrm{const}$"]
    rows = [{"problem": "P", "answer": answer} for answer in answers] + [{"problem": " ", "answer": "1"}]
    task = Benchmark(_write(tmp_path / "set.jsonl", rows))
    assert [p.id for p in task.problems("heldout")] == ["set-1", "set-5"]
    assert task.left_out == {"no answer": 2, "the answer is an explanation or a proof": 1, "no question": 1}


def test_a_solution_without_a_box_has_no_answer(tmp_path: Path) -> None:
    rows = [{"problem": "P", "solution": "#### 5"}, {"problem": "P", "solution": "\\boxed{5}"}]
    task = Benchmark(_write(tmp_path / "set.jsonl", rows))
    assert task.left_out == {"no answer": 1}
    assert len(task.problems("heldout")) == 1


def test_the_last_box_is_found_however_long_the_solution(tmp_path: Path) -> None:
    solution = "\\boxed{5} but \\boxed{\\frac{1}{2}} " + "#### and so on, <answer> " * 1000
    (problem,) = Benchmark(_write(tmp_path / "set.jsonl", [{"problem": "P", "solution": solution}])).problems("heldout")
    assert problem.answer == "\\frac{1}{2}"


def test_nothing_usable_or_nothing_known(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none of its 1 row can be graded \(no answer\)"):
        Benchmark(_write(tmp_path / "set.jsonl", [{"problem": "P", "answer": ""}]))
    with pytest.raises(UserError, match=r"the fields text, label fit no benchmark"):
        Benchmark(_write(tmp_path / "set.jsonl", [{"text": "P", "label": ""}]))
    with pytest.raises(UserError, match=r"line 2 has no field 'target'"):
        Benchmark(_write(tmp_path / "set.jsonl", [{"input": "P", "target": 1}, {"input": "P"}]))


def test_a_benchmark_is_held_out_as_a_whole_unless_asked(tmp_path: Path) -> None:
    path = _write(tmp_path / "set.jsonl", [{"input": f"{n % 150} ?", "target": n % 150} for n in range(300)])
    task = Benchmark(path)
    assert len(task.problems("heldout")) == 300
    with pytest.raises(UserError, match=r"benchmarks:set is for evaluation.*set\.jsonl,train=true"):
        task.problems("train")
    task = Benchmark(path, train=True)
    train, heldout = task.problems("train"), task.problems("heldout")
    assert len(train) + len(heldout) == 300
    assert heldout
    assert not {p.prompt for p in train} & {p.prompt for p in heldout}
    assert task.reward(train[0], f"#### {train[0].answer}") == 1.0
    assert task.reward(train[0], "#### -1") == 0.0


REAL = {
    "svamp": (1000, 0),
    "asdiv": (2215, 0),
    "mawps": (2065, 0),
    "minerva_math": (272, 0),
    "olympiadbench": (675, 1),
    "amc23": (40, 0),
    "aime24": (30, 0),
    "college_math": (2818, 115),
}


@pytest.mark.parametrize("name", REAL)
def test_the_real_files(shared_data: Path, name: str) -> None:
    path = shared_data / "math_bench" / f"{name}.jsonl"
    rows, left_out = REAL[name]
    assert path.read_bytes().count(b"\n") in (rows, rows - 1)  # counted without parsing
    task = Benchmark(str(path))
    problems = task.problems("heldout")
    assert (len(problems), task.left_out.total()) == (rows - left_out, left_out)
    assert len({p.id for p in problems}) == len(problems)
    assert all(p.prompt and p.answer for p in problems)
    if name in ("svamp", "amc23", "aime24"):
        assert all(p.answer.removeprefix("-").isdigit() for p in problems)
    if name == "asdiv":
        assert not any(p.answer.endswith(")") for p in problems if p.answer != "-(1/3)")


@pytest.mark.parametrize("name", ["asdiv", "minerva_math", "olympiadbench"])
def test_real_answers_are_right_when_given_and_wrong_when_changed(shared_data: Path, name: str) -> None:
    problems = Benchmark(str(shared_data / "math_bench" / f"{name}.jsonl")).problems("heldout")[::90]
    for problem in problems:
        plain = problem.answer.replace("$", "")
        assert grading.equal(problem.answer, f"Hence\n#### {plain}")
        assert not grading.equal(problem.answer, "Hence\n#### 987654.25")
