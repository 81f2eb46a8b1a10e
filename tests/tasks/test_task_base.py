"""`grade`: what it passes on, and whom it blames. The split by a hash: disjoint, complete, stable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grposcope.errors import UserError
from grposcope.tasks import Problem, Step, Task, grade
from grposcope.tasks.base import is_heldout, split_by_hash

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

    with pytest.raises(UserError, match="no single rollout raises"):
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
