"""A user's own problems and reward function."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.lab.tasks import Problem, grade
from grposcope.lab.tasks.custom import Custom, load_reward

ROWS: list[dict[str, Any]] = [
    {"prompt": "two", "answer": "2", "id": "a", "level": 1},
    {"question": "three", "answer": 3.0},
    {"problem": "four", "answer": "4", "level": 2},
]


def _write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def _all(task: Custom) -> list[Problem]:
    return sorted((*task.problems("train"), *task.problems("heldout")), key=lambda problem: problem.prompt)


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return _write(tmp_path / "rows.jsonl", ROWS)


def test_problems_keep_their_fields(rows: str) -> None:
    four, three, two = _all(Custom(rows, reward=lambda **columns: []))
    assert (two.id, two.prompt, two.answer, dict(two.fields)) == (
        "a",
        "two",
        "2",
        {"answer": "2", "id": "a", "level": 1},
    )
    assert (three.id, three.answer) == ("2", "3")
    assert (four.id, four.fields["level"]) == ("3", 2)


def test_the_splits_share_no_prompt(tmp_path: Path) -> None:
    task = Custom(_write(tmp_path / "r.jsonl", [{"prompt": str(n % 90)} for n in range(180)]), reward=lambda **_: [])
    train, heldout = task.problems("train"), task.problems("heldout")
    assert len(train) + len(heldout) == 180
    assert heldout
    assert not {p.prompt for p in train} & {p.prompt for p in heldout}


def test_the_reward_function_gets_one_list_per_column(rows: str) -> None:
    seen: dict[str, Any] = {}

    def reward(prompts: list[str], completions: list[str], answer: list[Any], **columns: list[Any]) -> list[float]:
        seen.update(prompts=prompts, completions=completions, answer=answer, **columns)
        return [float(str(a) in c) for a, c in zip(answer, completions, strict=True)]

    task = Custom(rows, reward)
    assert grade(task, _all(task), ["4!", "no", "2"]) == [1.0, 0.0, 1.0]
    assert seen == {
        "prompts": ["four", "three", "two"],
        "completions": ["4!", "no", "2"],
        "answer": ["4", 3.0, "2"],
        "level": [2, None, 1],
        "id": [None, None, "a"],
    }
    assert task.reward(_all(task)[0], "4") == 1.0


def test_a_function_that_names_its_columns_gets_only_those(rows: str) -> None:
    task = Custom(rows, reward=lambda completions: [len(completion) for completion in completions])
    assert grade(task, _all(task), ["a", "bb", ""]) == [1.0, 2.0, 0.0]


def test_a_function_that_needs_what_it_is_not_given_is_refused(rows: str) -> None:
    def wrong(prompt: list[str], completions: list[str], answer: list[Any], weight: float = 1.0) -> list[float]:
        return [weight for _ in completions]

    said = r"reward wrong\(prompt.* missing a required argument: 'prompt'; .*: prompts, completions, answer"
    with pytest.raises(UserError, match=said):
        Custom(rows, wrong)

    def by_position(completions: list[str], /) -> list[float]:
        return [0.0 for _ in completions]

    with pytest.raises(UserError, match=r"(?=.*'completions')(?=.*positional)"):  # Python 3.13 has another order
        Custom(rows, by_position)


def test_numbers_of_numpy_are_numbers(rows: str) -> None:
    task = Custom(rows, reward=lambda completions: np.ones(len(completions), dtype=np.float32))
    assert grade(task, _all(task), ["a", "b", "c"]) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("returned", "said"),
    [([1.0], "returned 1 value for 3"), ([0.0, math.nan, 0.0], r"rollout 1 \(problem 2\)"), (1.0, "raised TypeError")],
)
def test_what_the_function_returns_is_checked(rows: str, returned: Any, said: str) -> None:
    task = Custom(rows, reward=lambda completions: returned)
    with pytest.raises(UserError, match=said):
        grade(task, _all(task), ["a", "b", "c"])


def test_a_raising_function_names_the_rollout(rows: str) -> None:
    task = Custom(rows, reward=lambda completions: [int(completion) for completion in completions])
    with pytest.raises(UserError, match=r"ValueError.*rollout 1, problem 2, completion 'x'"):
        grade(task, _all(task), ["1", "x", "2"])


def test_a_function_that_hangs_names_the_rollout(rows: str) -> None:
    def slow(completions: list[str]) -> list[float]:
        time.sleep(20 * ("x" in completions))
        return [0.0 for _ in completions]

    task = Custom(rows, reward=slow)
    with pytest.raises(UserError, match=r"longer than 0.4 s for 3 rollouts \(rollout 1, problem 2, completion 'x'\)"):
        grade(task, _all(task), ["1", "x", "2"], seconds=0.4)
    assert grade(task, _all(task), ["1", "2", "3"], seconds=0.4) == [0.0, 0.0, 0.0]


def test_without_a_function_answers_are_compared(rows: str) -> None:
    pytest.importorskip("math_verify", reason="grading needs math-verify")
    task = Custom(rows)
    assert grade(task, _all(task), ["#### 4.0", "\\boxed{2}", "The answer is 2."]) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("row", [{"prompt": "two"}, {"prompt": "two", "answer": ""}, {"prompt": "two", "answer": None}])
def test_without_a_function_every_line_needs_an_answer(tmp_path: Path, row: dict[str, Any]) -> None:
    pytest.importorskip("math_verify", reason="grading needs math-verify")
    path = _write(tmp_path / "r.jsonl", [ROWS[0], row])
    with pytest.raises(UserError, match=r"r\.jsonl, line 2 has no 'answer'.*reward function"):
        Custom(path)
    assert len(_all(Custom(path, reward=lambda **columns: []))) == 2


@pytest.mark.parametrize("prompt", ["", "  ", None, 5, [{"role": "user", "content": "two"}]])
def test_a_prompt_is_a_text(tmp_path: Path, prompt: Any) -> None:
    with pytest.raises(UserError, match="line 1: 'prompt' should be non-empty text"):
        Custom(_write(tmp_path / "r.jsonl", [{"prompt": prompt}]), reward=lambda **columns: [])


def test_no_prompt_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no field 'prompt' or 'question' or 'problem'; its fields are text"):
        Custom(_write(tmp_path / "r.jsonl", [{"text": "two"}]), reward=lambda **columns: [])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with modules whose names no other test uses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "own_rewards_a.py").write_text(
        "from own_helper_a import half\nlimit = 5\ndef score(**_): return [half]\n"
    )
    (tmp_path / "own_helper_a.py").write_text("half = 0.5\n")
    (tmp_path / "own_rewards_b.py").write_text("import no_such_package_q\n")
    (tmp_path / "own_rewards_c.py").write_text("def broken(:\n")
    return tmp_path


@pytest.mark.parametrize("spec", ["own_rewards_a:score", "own_rewards_a.py:score", "./own_rewards_a.py:score"])
def test_a_function_of_the_current_folder(folder: Path, spec: str) -> None:
    sys.path.insert(0, str(folder))
    assert load_reward(spec)() == [0.5]


def test_the_current_folder_is_searched_without_being_asked(folder: Path) -> None:
    (folder / "own_rewards_d.py").write_text("def score(**_): return [0.25]\n")
    assert load_reward("own_rewards_d:score")() == [0.25]


def test_an_installed_function() -> None:
    assert load_reward("math:fsum") is math.fsum


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("own_rewards_a", "write module:function"),
        (":score", "write module:function"),
        ("own_rewards_a:", "write module:function"),
        ("no_such_module_q:score", "there is no module 'no_such_module_q'"),
        ("no_such_module_q.py:score", r"there is no file no_such_module_q\.py"),
        ("own_rewards_a:scor", "has no 'scor'; its functions are score"),
        ("own_rewards_a:limit", "'limit' is a int, not a function"),
        ("own_rewards_b:score", "imports no_such_package_q, which is missing"),
        ("own_rewards_b.py:score", "importing own_rewards_b.py raised ModuleNotFoundError"),
        ("own_rewards_c:broken", "importing own_rewards_c raised SyntaxError"),
        ("own_rewards_a.deeper:score", "there is no module 'own_rewards_a.deeper'"),
    ],
)
def test_a_function_that_cannot_be_had(folder: Path, spec: str, said: str) -> None:
    sys.path.insert(0, str(folder))
    with pytest.raises(UserError, match=said) as caught:
        load_reward(spec)
    assert "\n" not in str(caught.value)
