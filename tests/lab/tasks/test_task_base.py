"""`grade`: what it passes on, and whom it blames. The split: disjoint, complete, stable. Reading JSON lines."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grposcope.core.errors import UserError
from grposcope.lab.tasks import Problem, Step, Task, grade
from grposcope.lab.tasks.base import as_text, is_heldout, read_rows, split_by_hash

PROBLEMS = [Problem(f"p{n}", f"prompt {n}", str(n)) for n in range(3)]
COMPLETIONS = ["a", "b", "c"]


class Fixed(Task):
    """Returns, or raises, what it is given."""

    name = "fixed"

    def __init__(self, answer: Callable[[Sequence[Problem], Sequence[str]], Any]):
        self.answer = answer

    def rewards(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        return self.answer(problems, completions)


def test_finite_numbers_and_booleans_pass_as_floats() -> None:
    rewards = grade(Fixed(lambda p, c: [True, 2, -0.5]), PROBLEMS, COMPLETIONS)
    assert rewards == [1.0, 2.0, -0.5]
    assert all(type(value) is float for value in rewards)


def test_a_task_needs_only_problems_and_reward() -> None:
    class Mine(Task):
        def reward(self, problem: Problem, completion: str) -> float:
            return float(problem.answer == completion)

    assert grade(Mine(), PROBLEMS, ["0", "x", "2"]) == [1.0, 0.0, 1.0]


def test_a_raising_reward_names_the_rollout() -> None:
    def answer(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        return [1 / (completion != "b") for completion in completions]

    with pytest.raises(UserError, match=r"ZeroDivisionError.*rollout 1, problem p1, completion 'b'"):
        grade(Fixed(answer), PROBLEMS, COMPLETIONS)


def test_a_reward_that_raises_for_the_batch_only_says_so() -> None:
    def answer(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        return [1.0] if len(completions) == 1 else [][0]

    with pytest.raises(UserError, match="no single rollout fails"):
        grade(Fixed(answer), PROBLEMS, COMPLETIONS)


def test_a_user_error_passes_through() -> None:
    def answer(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        raise UserError("the verifier is not installed")

    with pytest.raises(UserError, match=r"^the verifier is not installed$"):
        grade(Fixed(answer), PROBLEMS, COMPLETIONS)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_wrong_count_is_named(count: int) -> None:
    with pytest.raises(UserError, match=f"returned {count} values for 3 rollouts"):
        grade(Fixed(lambda p, c: [0.0] * count), PROBLEMS, COMPLETIONS)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "1"])
def test_a_value_that_is_no_finite_number_names_the_rollout(value: object) -> None:
    with pytest.raises(UserError, match=r"rollout 2 \(problem p2\)"):
        grade(Fixed(lambda p, c: [0.0, 1.0, value]), PROBLEMS, COMPLETIONS)


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        PROBLEMS[0].answer = "5"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Step(0, 1, True).correct = False  # type: ignore[misc]


def _problems(prompts: list[str]) -> list[Problem]:
    return [Problem(str(n), prompt) for n, prompt in enumerate(prompts)]


@given(st.lists(st.text("abcé ", max_size=3), max_size=30))
def test_the_splits_share_no_prompt_and_lose_no_problem(prompts: list[str]) -> None:
    problems = _problems(prompts)
    train, heldout = split_by_hash(problems, "train"), split_by_hash(problems, "heldout")
    assert not {p.prompt for p in train} & {p.prompt for p in heldout}
    assert sorted(int(p.id) for p in (*train, *heldout)) == list(range(len(problems)))
    if len(set(prompts)) > 1:
        assert train
        assert heldout


def test_about_a_tenth_is_held_out_in_the_order_given() -> None:
    problems = _problems([f"What is {n} + 1?" for n in range(5000)])
    heldout = split_by_hash(problems, "heldout")
    assert 400 < len(heldout) < 600
    assert [int(p.id) for p in heldout] == sorted(int(p.id) for p in heldout)


def test_adding_problems_moves_none_of_the_others() -> None:
    problems = _problems([str(n) for n in range(400)])
    before = {p.prompt for p in split_by_hash(problems[:200], "heldout")}
    after = {p.prompt for p in split_by_hash(problems, "heldout")}
    assert before == {p.prompt for p in problems[:200]} & after


def test_few_problems_are_divided_all_the_same_and_one_is_for_training() -> None:
    prompts = [text for text in map(str, range(50)) if not is_heldout(text)][:3]
    assert len(split_by_hash(_problems(prompts), "heldout")) == 1
    held = [text for text in map(str, range(100)) if is_heldout(text)][:2]
    assert len(split_by_hash(_problems(held), "train")) == 1
    assert len(split_by_hash(_problems(held[:1]), "train")) == 1
    assert split_by_hash(_problems(held[:1]), "heldout") == ()


# JSON lines


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def test_rows_come_with_their_line_numbers_and_blank_lines_are_skipped(file: Path) -> None:
    file.write_text('{"a": 1}\n\n   \n{"a": "é"}')
    assert list(read_rows(file)) == [(1, {"a": 1}), (4, {"a": "é"})]


def test_reading_is_streamed(file: Path) -> None:
    file.write_text('{"a": 1}\nnot json\n')
    assert next(read_rows(file)) == (1, {"a": 1})


def test_one_of_several_names_is_enough(file: Path) -> None:
    file.write_text('{"prompt": "x"}\n{"question": "y"}\n')
    assert len(list(read_rows(file, required=(("prompt", "question"),)))) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b'{"a": 1}\n{"a": 1\n', "line 2: not valid JSON"),
        (b"[1, 2]\n", "line 1: a JSON list, not an object"),
        (b'"text"\n', "line 1: a JSON str, not an object"),
        (b'{"a": 1}\n\n{"b": 1, "c": 2}\n', "line 3 has no field 'a'; its fields are b, c"),
        (b"{}\n", "its fields are none"),
        (b'{"a": "\xff"}\n', "line 1: byte 8 is not UTF-8"),
        (b'{"a": "\\ud83d"}\n', "line 1: holds half of a surrogate pair"),
        (b"[" * 100_000 + b"\n", "line 1: not valid JSON"),
        (gzip.compress(b'{"a": 1}\n' * 9, mtime=0)[:-12], "the gzip data is cut off"),
    ],
)
def test_a_bad_file_is_one_line_with_file_and_place(file: Path, content: bytes, said: str) -> None:
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        list(read_rows(file, required=("a",)))
    message = str(caught.value)
    assert str(file) in message
    assert said in message
    assert "\n" not in message


def test_a_full_surrogate_pair_is_text(file: Path) -> None:
    file.write_text(json.dumps({"a": "😀"}))
    assert list(read_rows(file)) == [(1, {"a": "😀"})]


def test_missing_alternatives_are_all_named(file: Path) -> None:
    file.write_text('{"text": "x"}\n')
    with pytest.raises(UserError, match="no field 'prompt' or 'question'"):
        list(read_rows(file, required=(("prompt", "question"),)))


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        list(read_rows(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match="is a folder"):
        list(read_rows(tmp_path))


@pytest.mark.parametrize(
    ("value", "text"),
    [(27.0, "27"), (0.5, "0.5"), (3, "3"), (" 7 ", "7"), (None, ""), (["1", 2.0], "1, 2"), ([], ""), (-1.0, "-1")],
)
def test_values_as_answers(value: object, text: str) -> None:
    assert as_text(value) == text
