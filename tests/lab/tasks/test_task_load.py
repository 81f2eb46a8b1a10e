"""`load`: every form of a task's name, and every mistake in one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import grposcope.lab.tasks
from grposcope.core.errors import UserError
from grposcope.lab.tasks import Task, grade, load


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = ({"question": f"{n} + 1 ?", "answer": f"#### {n + 1}"} for n in range(40))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _earns_its_rewards(task: Task, answer: str) -> None:
    problem = task.problems("heldout")[0]
    assert grade(task, [problem] * 2, [answer.format(problem.answer), "nothing"]) == [1.0, 0.0]


def test_arithmetic() -> None:
    assert load("arithmetic").name == "arithmetic:steps=3,largest=9,ops=+-,limit=99"
    task = load("arithmetic:steps=2,ops=+-*,largest=5,size=7")
    assert task.name == "arithmetic:steps=2,largest=5,ops=+-*,limit=99"
    assert len(task.problems("train")) == 7
    _earns_its_rewards(task, "{}")


def test_gsm8k(rows: Path) -> None:
    pytest.importorskip("math_verify", reason="grading needs math-verify")
    _earns_its_rewards(load(f"gsm8k:{rows}"), "#### {}")


def test_benchmarks(rows: Path) -> None:
    pytest.importorskip("math_verify", reason="grading needs math-verify")
    task = load(f"benchmarks:{rows}")
    assert len(task.problems("heldout")) == 40
    _earns_its_rewards(task, "#### {}")
    assert 0 < len(load(f"benchmarks:{rows},train=true").problems("heldout")) < 40


def test_reasoning_gym() -> None:
    pytest.importorskip("reasoning_gym", reason="needs reasoning-gym")
    task = load("reasoning_gym:chain_sum,size=5,heldout=3,max_terms=2,allow_negation=True,graded=false")
    assert task.name == "reasoning_gym:chain_sum,max_terms=2,allow_negation=True"
    assert len(task.problems("train")) == 5
    _earns_its_rewards(task, "#### {}")


def test_jsonl(rows: Path) -> None:
    pytest.importorskip("math_verify", reason="grading needs math-verify")
    task = load(f"jsonl:{rows}")
    problem = task.problems("train")[0]
    assert task.reward(problem, problem.answer) == 1.0
    (rows.parent / "mine.py").write_text("def one(completions): return [1.0] * len(completions)\n")
    assert load(f"jsonl:{rows}", reward=f"{rows.parent / 'mine.py'}:one").reward(problem, "anything") == 1.0


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "aritmetic",
            "no task 'aritmetic' .did you mean arithmetic.*arithmetic, gsm8k, benchmarks, reasoning_gym, jsonl",
        ),
        ("", "no task ''"),
        ("arithmetic:step=3", "no option 'step'; its options are steps, largest, ops, limit, size"),
        ("arithmetic:steps=three", "steps=three should be a whole number"),
        ("arithmetic:steps", "'steps' is not an option; write key=value"),
        ("arithmetic:steps=", "'steps=' is not an option"),
        ("benchmarks", "needs an argument: benchmarks:PATH"),
        ("jsonl:", "needs an argument: jsonl:PATH"),
        ("reasoning_gym", "needs an argument: reasoning_gym:NAME"),
        ("reasoning_gym:chain_sum,size=many", "size=many should be a whole number"),
        ("reasoning_gym:chain_sum,size=true", "size=True should be a whole number"),
        ("reasoning_gym:chain_sum,seed=1.5", "seed=1.5 should be a whole number"),
        ("reasoning_gym:chain_sum,graded=1", "graded=1 should be true or false"),
    ],
)
def test_mistakes(spec: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        load(spec)
    assert "\n" not in str(caught.value)


def test_a_reward_function_goes_with_jsonl_only() -> None:
    with pytest.raises(UserError, match="a reward function goes with jsonl:PATH"):
        load("arithmetic", reward="math:fsum")


def test_the_docstring_tells_every_task_and_option() -> None:
    text = grposcope.lab.tasks.__doc__ or ""
    assert all(name in text for name in grposcope.lab.tasks.TASKS)
    assert all(
        f"{option}=" in text for option in ("steps", "largest", "ops", "limit", "size", "seed", "graded", "train")
    )


def test_importing_the_room_imports_no_grader() -> None:
    heavy = "'math_verify', 'reasoning_gym', 'datasets', 'torch'"
    code = f"import sys, grposcope.lab.tasks; sys.exit(any(name in sys.modules for name in [{heavy}]))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
