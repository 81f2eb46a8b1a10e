"""The arithmetic verifier against Python's own arithmetic, and its steps against what was written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grposcope.core.errors import UserError
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.tasks.arithmetic import _operations as operations
from grposcope.lab.tasks.arithmetic import _solution as solution
from grposcope.lab.tasks.arithmetic import _value as value
from grposcope.lab.tasks.base import Problem, is_heldout

operands = st.integers(0, 999)
terms = st.tuples(st.sampled_from("+-*"), operands)
expressions = st.builds(
    lambda sign, head, rest: f"{sign}{head}" + "".join(f"{op}{n}" for op, n in rest),
    st.sampled_from(["", "-"]),
    operands,
    st.lists(terms, max_size=6),
)


@given(expressions)
def test_value_agrees_with_python(expression: str) -> None:
    assert value(expression) == eval(expression)  # built above from digits and + - *


@given(expressions)
def test_operations_counts_operators_between_numbers(expression: str) -> None:
    assert operations(expression) == len(re.findall(r"\d+", expression)) - 1


@given(st.text(alphabet="0123456789+-* .()a", max_size=8))
def test_what_is_no_expression_has_no_value(text: str) -> None:
    if not re.fullmatch(r"-?\d+([+\-*]\d+)*", text):
        assert value(text) is None


@pytest.mark.parametrize("ops", ["+", "+-", "+-*", "*"])
@pytest.mark.parametrize("steps", [1, 3, 6])
def test_every_problem_is_right_and_its_written_solution_earns_everything(ops: str, steps: int) -> None:
    task = Arithmetic(steps=steps, largest=9, ops=ops, limit=999, size=60)
    for split in ("train", "heldout"):
        for problem in task.problems(split):
            expression = problem.prompt.removesuffix("=")
            assert operations(expression) == steps
            assert str(eval(expression)) == problem.answer
            numbers = [eval(part) for part in solution(expression)]
            assert all(number == int(problem.answer) for number in numbers)
            written = "=".join(solution(expression))
            assert len(written) <= task.max_tokens
            assert task.reward(problem, written) == 1.0
            labelled = task.steps(problem, written)
            assert len(labelled) == steps
            assert all(step.correct for step in labelled)
            assert "".join(f"{written}."[step.start : step.end] for step in labelled) == f"{written}."
            assert all(written[step.end - 1] == "=" for step in labelled[:-1])
            assert labelled[-1].end == len(written) + 1  # only the end of the completion closes it


def test_prefixes_stay_between_zero_and_the_limit() -> None:
    for problem in Arithmetic(steps=5, largest=20, limit=30, size=100).problems("train"):
        expression = problem.prompt.removesuffix("=")
        cuts = [match.start() for match in re.finditer(r"[+-]", expression)] + [len(expression)]
        assert all(0 <= eval(expression[:cut]) <= 30 for cut in cuts)


def _labels(prompt: str, completion: str) -> list[bool]:
    problem = Problem(prompt, prompt, str(value(prompt.rstrip("="))))
    return [step.correct for step in Arithmetic().steps(problem, completion)]


@pytest.mark.parametrize(
    ("completion", "labels"),
    [
        ("11-5+7=6+7=13", [True, True, True]),
        ("13", [True]),  # steps may be skipped
        ("11-5+7=13", [True, True]),
        ("11-5+7=11-5+7=13", [True, False, True]),  # repeated: nothing was done
        ("12-5+7=7+7=14", [False, True, True]),  # wrong once, then consistent with what was written
        ("11-5+7=6+7=14", [True, True, False]),
        ("13=13", [True, False]),
        (" 11-5+7 = 13 ", [True, True]),
        ("13=", [True, False]),  # an empty segment
        ("hello=13", [False, False]),  # nothing to compare with
        ("", [False]),
    ],
)
def test_step_labels(completion: str, labels: list[bool]) -> None:
    assert _labels("3+8-5+7=", completion) == labels


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("13", 1),
        ("11-5+7=6+7=13", 1),
        ("12-5=13", 1),
        ("6+7=14", 0),
        ("13=14", 0),
        ("13 14", 0),
        ("13=", 0),
        ("is 13", 1),
        ("-13", 0),
        ("", 0),
        ("113", 0),
    ],
)
def test_reward_is_the_last_integer(completion: str, reward: float) -> None:
    problem = Problem("3+8-5+7=", "3+8-5+7=", "13")
    assert Arithmetic().reward(problem, completion) == reward


@given(st.lists(st.sampled_from(["11-5+7", "6+7", "13", "14", "7+7", "12-5+7", "x", ""]), min_size=1, max_size=5))
def test_right_steps_down_to_a_number_mean_a_right_outcome(segments: list[str]) -> None:
    problem, completion = Problem("3+8-5+7=", "3+8-5+7=", "13"), "=".join(segments)
    task = Arithmetic()
    if all(step.correct for step in task.steps(problem, completion)) and segments[-1].isdigit():
        assert task.reward(problem, completion) == 1.0


def test_splits_are_disjoint_distinct_and_the_same_every_time() -> None:
    train, heldout = Arithmetic(size=500).problems("train"), Arithmetic(size=500).problems("heldout")
    prompts = [p.prompt for p in (*train, *heldout)]
    assert len(set(prompts)) == len(prompts) == 1000
    assert all(is_heldout(p.prompt) for p in heldout)
    assert not any(is_heldout(p.prompt) for p in train)
    assert Arithmetic(size=500).problems("train") == train


def test_fewer_problems_where_there_are_no_more() -> None:
    assert 0 < len(Arithmetic(steps=1, largest=3, limit=3, ops="+", size=5000).problems("train")) <= 3
    with pytest.raises(UserError, match="has no heldout problems"):
        Arithmetic(steps=1, largest=2, limit=2, ops="+").problems("heldout")


@pytest.mark.parametrize(
    "options",
    [{"steps": 0}, {"steps": 21}, {"largest": 0}, {"largest": 100}, {"ops": "/"}, {"ops": ""}, {"size": 0}],
)
def test_options_outside_their_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UserError, match="arithmetic: "):
        Arithmetic(**options)  # type: ignore[arg-type]
